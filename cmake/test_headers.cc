// Nothing: the target whose precompiled headers all tests use (targets.cmake).
int main() {}
