"""Roots of their own for stories that install things: layers on a root that is left as it is."""
import fcntl
import os
import shutil
import socket
import struct
import subprocess

ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
       "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


def run(*argv, root=None, **more):
    """Runs it, in a root if one is given; what it said is in .stdout."""
    if root:
        argv = ("chroot", root) + argv
        more.setdefault("env", ENV)
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def make_bare(root):
    """A minimal Debian, made if it is not there, which reaches packages as this machine does."""
    if not os.path.exists(os.path.join(root, "made")):
        shutil.rmtree(root, ignore_errors=True)
        made = run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", root)
        if made.returncode:
            raise SystemExit("debootstrap failed: %s" % made.stdout[-2000:])
        open(os.path.join(root, "made"), "w").close()
    policy = os.path.join(root, "usr/sbin/policy-rc.d")  # no server of Debian's starts by itself
    with open(policy, "w") as f:
        f.write("#!/bin/sh\nexit 101\n")
    os.chmod(policy, 0o755)
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(name, root + name)
    shutil.copytree("/etc/apt", root + "/etc/apt", dirs_exist_ok=True)


def mount(*argv):
    subprocess.run(("mount",) + argv, check=True)


def lo_up():
    """In a network of one's own (unshare --net): this host's addresses 127.*."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING


def make_dev(dev):
    """Devices of its own, so that nothing that happens to the root happens to this machine's."""
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        os.mknod(os.path.join(dev, name), 0o20666, os.makedev(1, minor))
        os.chmod(os.path.join(dev, name), 0o666)
    os.symlink("/proc/self/fd", os.path.join(dev, "fd"))
    os.mkdir(os.path.join(dev, "shm"))
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", os.path.join(dev, "shm"))


def layered(lower, work, on_disk=False):
    """Mounts work/root: lower with what is changed, which is in memory, or on the disk of work. Returns
    its path and that of the changes. Wants mounts of one's own (unshare --mount --pid): who makes and
    removes work is outside, where nothing is mounted in it."""
    root, layers = os.path.join(work, "root"), os.path.join(work, "layers")
    for d in (root, layers):
        os.makedirs(d)
    if not on_disk:
        mount("-t", "tmpfs", "layers", layers)
    for d in ("upper", "work"):
        os.mkdir(os.path.join(layers, d))
    mount("-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s/upper,workdir=%s/work"
          % (lower, layers, layers), root)
    mount("-t", "proc", "proc", root + "/proc")
    for d in ("tmp", "run", "dev"):
        mount("-t", "tmpfs", "-o", "mode=%s" % ("755" if d == "dev" else "1777"), "tmpfs", os.path.join(root, d))
    make_dev(root + "/dev")
    return root, os.path.join(layers, "upper")
