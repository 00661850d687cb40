"""Manifests of the Python SDK: written as JSON lines, or compared with what another program made of them.

    manifests.py            one line for each manifest: its name, itself, and its description at several depths
    manifests.py compare    reads lines with `name`, `theirs` and `ours`; says which are not the same manifest
"""

import json
import random
import sys

from agents.sandbox.entries import (
    AzureBlobMount,
    BoxMount,
    Dir,
    DockerVolumeMountStrategy,
    File,
    FuseMountPattern,
    GCSMount,
    GitRepo,
    InContainerMountStrategy,
    LocalDir,
    LocalFile,
    MountpointMountPattern,
    R2Mount,
    RcloneMountPattern,
    S3FilesMount,
    S3FilesMountPattern,
    S3Mount,
)
from agents.sandbox.manifest import EnvEntry, Environment, Manifest, StrEnvValue
from agents.sandbox.types import Group, Permissions, User
from agents.sandbox.workspace_paths import SandboxPathGrant

DEPTHS = [1, 2, 3, 7]


def inside(pattern):
    return InContainerMountStrategy(pattern=pattern)


def by_hand():
    rclone = inside(RcloneMountPattern(extra_args=["--allow-other"], mode="nfs", nfs_mount_options=["soft"]))
    ada = User(name="ada")
    yield "empty", Manifest()
    yield "root", Manifest(root="/srv/work")
    yield "files", Manifest(
        entries={
            "a.txt": File(content=b"hi"),
            "b/c/d.txt": File(content="h\u00e9\n\t\"\\\u2028\U0001f600".encode(), description="deep — \"quoted\""),
            "empty": File(content=b""),
            "secret": File(content=b"x", ephemeral=True, permissions=Permissions(owner=6, group=0, other=0)),
            "mode": File(content=b"x", permissions=Permissions.from_mode(0o640), group=ada),
        }
    )
    yield "dirs", Manifest(
        entries={
            "d": Dir(
                description="things",
                children={
                    "x": File(content=b"x"),
                    "y/z": File(content=b"z", description="last"),
                    "e": Dir(children={"f": Dir(children={"g": File(content=b"g")})}, ephemeral=True),
                },
            ),
            "local": LocalDir(src="src", group=Group(name="staff", users=[ada])),
            "bare": LocalDir(),
            "file": LocalFile(src="/etc/hostname"),
            "repo": GitRepo(repo="a/b", ref="main", subpath="x"),
            "repo2": GitRepo(repo="a/b", ref="0123abc", host="git.example.com"),
        }
    )
    yield "mounts", Manifest(
        entries={
            "s3": S3Mount(bucket="b", access_key_id="k", secret_access_key="s", session_token="t", mount_strategy=rclone),
            "s3m": S3Mount(
                bucket="b",
                mount_path="/mnt/x",
                read_only=False,
                ephemeral=False,
                mount_strategy=inside(MountpointMountPattern()),
                description="a bucket",
            ),
            "s3d": S3Mount(
                bucket="b",
                mount_path="elsewhere/y",
                prefix="p",
                region="r",
                endpoint_url="https://s3.example.com",
                s3_provider="Minio",
                mount_strategy=DockerVolumeMountStrategy(driver="rclone", driver_options={"aB": "c"}),
            ),
            "r2": R2Mount(bucket="b", account_id="a", custom_domain="https://x.example.com", mount_strategy=rclone),
            "gcs": GCSMount(bucket="b", access_id="i", secret_access_key="s", access_token="t", mount_strategy=rclone),
            "az": AzureBlobMount(
                account="a", container="c", account_key="k", mount_strategy=inside(FuseMountPattern(cache_size_mb=5))
            ),
            "box": BoxMount(path="/x", box_sub_type="enterprise", token="t", mount_strategy=rclone),
            "fs": S3FilesMount(
                file_system_id="fs",
                extra_options={"aB": None, "c": "d"},
                mount_strategy=inside(S3FilesMountPattern()),
            ),
        },
        remote_mount_command_allowlist=["ls"],
    )
    yield "environment", Manifest(
        environment=Environment(
            value={
                "A": "b",
                "EMPTY": "",
                "B": StrEnvValue(value="c"),
                "C": EnvEntry(value=StrEnvValue(value="x"), description="d", ephemeral=True),
                "D": EnvEntry(value=StrEnvValue(value="x")),
            }
        )
    )
    yield "variable named value", Manifest(environment=Environment(value={"value": "x", "type": "y"}))
    yield "only a variable named value", Manifest(environment=Environment(value={"value": "x"}))
    yield "accounts and grants", Manifest(
        users=[ada, User(name="bob")],
        groups=[Group(name="staff", users=[ada]), Group(name="none", users=[])],
        extra_path_grants=(
            SandboxPathGrant(path="/data", read_only=True, description="x"),
            SandboxPathGrant(path="/opt/./x/"),
        ),
    )
    yield "cut", Manifest(
        entries={f"dir{n:02}/file{m:02}.txt": File(content=b"", description="word " * m) for n in range(9) for m in range(9)}
    )


def at_random(chance, depth=0):
    names = ["a", "b-c", "a.txt", "ü", "x y", "Z", "0", "q/r", "q-r"]
    entries = {}
    for name in chance.sample(names, chance.randint(0, 5)):
        common = {"description": chance.choice([None, "", "some text"]), "ephemeral": chance.random() < 0.3}
        if chance.random() < 0.5:
            common["permissions"] = Permissions.from_mode(chance.randint(0, 0o777))
        kind = chance.randint(0, 4 if depth < 4 else 3)
        if kind == 0:
            entries[name] = File(content=chance.choice(["", "x\ny", "ünï", "\u0085"]).encode(), **common)
        elif kind == 1:
            entries[name] = LocalDir(src=chance.choice([None, ".", "/x"]), **common)
        elif kind == 2:
            entries[name] = GitRepo(repo="a/b", ref="v1", **common)
        elif kind == 3:
            strategy = inside(RcloneMountPattern(remote_name=chance.choice([None, "r"])))
            at = chance.choice([None, "/mnt/q"]) if depth == 0 else None
            entries[name] = S3Mount(bucket="b", mount_strategy=strategy, mount_path=at, **common)
        else:
            entries[name] = Dir(children=at_random(chance, depth + 1), **common)
    return entries


def all_manifests():
    yield from by_hand()
    chance = random.Random(7)
    for number in range(150):
        yield f"random {number}", Manifest(entries=at_random(chance))


def write():
    for name, manifest in all_manifests():
        described = {depth: manifest.describe(depth) for depth in DEPTHS}
        print(json.dumps({"name": name, "manifest": manifest.model_dump(mode="json"), "describe": described}))


def compare():
    different = 0
    for line in sys.stdin:
        pair = json.loads(line)
        theirs = Manifest.model_validate(pair["theirs"])
        ours = Manifest.model_validate(pair["ours"])
        # Accounts are equal by name and permissions by mode, so the whole content is compared as well.
        if theirs != ours or theirs.model_dump(mode="json") != ours.model_dump(mode="json"):
            different += 1
            print(f"{pair['name']}:\n  {theirs.model_dump(mode='json')}\n  {ours.model_dump(mode='json')}")
    sys.exit(1 if different else 0)


compare() if sys.argv[1:] == ["compare"] else write()
