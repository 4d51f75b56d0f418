"""Certificates for tests, by openssl: those of authorities and of whom they vouch for, as PEM files."""

import os
import subprocess
from collections.abc import Mapping


def make(folder: str, authorities: tuple[str, ...], vouched: Mapping[str, str]) -> None:
    """NAME.pem and NAME.key in the folder; `vouched`: of each name, the authority. All are good for localhost."""
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    for name in authorities:
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
                "-subj", f"/CN={name}", "-days", "2")
    with open(os.path.join(folder, "names"), "w", encoding="utf-8") as file:
        file.write("subjectAltName=DNS:localhost")
    for name, by in vouched.items():
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", "names")
