// Nothing: of the target whose precompiled headers all libraries use (targets.cmake).
