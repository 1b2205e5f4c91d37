package attack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-kv/holdfast/platform"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// diskBytes is the size of a disk in bytes. It is enough for three segments of
// the log and for snapshots.
const diskBytes = 320 << 20

// diskSet holds disks that can lose power or run full. Each disk is a file
// that contains an ext4 file system. The disks are mounted in a mount namespace
// that belongs to one thread, and that thread starts the nodes. Therefore no
// mount remains, however this process ends.
type diskSet struct {
	dir     string
	starter *process.Starter
	tid     int
}

// disk is one disk of a diskSet: an ext4 file system in the file image, which is
// mounted at mount.
type disk struct {
	room         *diskSet
	image, mount string
}

// canMount returns why disks cannot be mounted on this machine, or "" if they
// can.
func canMount(Config) string {
	if os.Getuid() != 0 {
		return "needs root"
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return "needs mkfs.ext4"
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "needs loop devices"
	}
	return ""
}

func newDiskRoom(dir string) (*diskSet, error) {
	r := &diskSet{dir: dir}
	var err error
	r.starter, err = process.NewStarter(func() (err error) {
		r.tid, err = platform.OwnMounts()
		return err
	})
	return r, err
}

// hostPath translates a path inside the mount namespace into a path that works
// outside it, while this process runs.
func (r *diskSet) hostPath(path string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/task/%d/root", os.Getpid(), r.tid), path)
}

func (r *diskSet) close() {
	if r.starter != nil {
		r.starter.Close()
	}
}

func (r *diskSet) add(name string) (*disk, error) {
	d := &disk{r, filepath.Join(r.dir, name+".img"), filepath.Join(r.dir, name+".disk")}
	f, err := os.Create(d.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskBytes), f.Close()); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1",
		d.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	if err := os.Mkdir(d.mount, 0o755); err != nil {
		return nil, err
	}
	return d, d.attach()
}

// attach mounts the disk. After a loss of power, the mount replays the journal
// of the file system.
func (d *disk) attach() error {
	return d.room.starter.Do(func() error {
		out, err := exec.Command("mount", "-o", "loop,noatime", d.image, d.mount).CombinedOutput()
		if err != nil {
			return fmt.Errorf("mount %s: %w: %s", d.image, err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}

// detach unmounts the disk. No process may be using the disk.
func (d *disk) detach() error {
	return d.room.starter.Do(func() error {
		if err := unix.Unmount(d.mount, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", d.mount, err)
		}
		return nil
	})
}

// fsIocShutdown is the ioctl FS_IOC_SHUTDOWN. With the flag noLogFlush,
// everything that was not made durable before is lost, as in a loss of power.
const (
	fsIocShutdown = 0x8004587d
	noLogFlush    = 2
)

// cutPower discards everything that is not durable. Every later access to the
// disk fails.
func (d *disk) cutPower() error {
	f, err := os.Open(d.room.hostPath(d.mount))
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocShutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("FS_IOC_SHUTDOWN on %s: %w", d.mount, errno)
	}
	return nil
}

// fill uses all free space of the disk. It returns the file that occupies the
// space. Removing that file frees the space.
func (d *disk) fill() (balloon string, err error) {
	balloon = d.room.hostPath(filepath.Join(d.mount, "balloon"))
	f, err := os.Create(balloon)
	if err != nil {
		return balloon, err
	}
	defer f.Close()
	size := int64(0)
	for step := int64(32 << 20); step >= 4096; {
		err := platform.Allocate(f, size, step)
		switch {
		case err == nil:
			size += step
		case errors.Is(err, syscall.ENOSPC):
			step /= 2
		default:
			return balloon, fmt.Errorf("fill %s: %w", d.mount, err)
		}
	}
	return balloon, nil
}
