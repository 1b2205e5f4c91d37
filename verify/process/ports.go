package process

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// The ports of clusters are between lowestPort and the range from which the
// system takes the local ports of outgoing connections. If that range is not
// known or begins too low, the ports of clusters end at highestPort. A node
// that is restarted must find its port free, so no outgoing connection of
// another program may take the port in the meantime.
const (
	lowestPort  = 10240
	highestPort = 30000
)

var (
	portsMu       sync.Mutex
	reservedPorts = make(map[int]bool) // reserved by this process
	portLocks     *os.File             // see lockPorts; nil if it was not called
)

// PortsVariable is the environment variable with the name of a file in which
// processes reserve ports. The tests set it, so that the programs that they start
// use it too. go test runs the tests of several packages at the same time, and a
// node that restarts must find its ports free. The name does not begin with
// HOLDFAST_, because such variables set flags.
const PortsVariable = "TEST_PORTS_OF_HOLDFAST"

// FreePorts finds n ranges of ports on which no program listens, and returns
// the first port of the first range. Each range has count ports, and the first
// ports of two successive ranges differ by step. FreePorts does not return the
// ports again until this process ends. If PortsVariable is set, other processes for
// which it is set to the same file do not get the ports until then either, even
// while no program listens on them.
func FreePorts(n, count, step int) (base int, err error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	if name := os.Getenv(PortsVariable); name != "" && portLocks == nil {
		if err := lockPorts(name); err != nil {
			return 0, err
		}
	}
	highest := highestPort
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var low int
		if _, err := fmt.Sscan(string(b), &low); err == nil && low > lowestPort+5000 {
			highest = low - 1
		}
	}
	room := highest - lowestPort - (n-1)*step - count
	if room <= 0 {
		return 0, fmt.Errorf("%d ranges of %d ports, %d apart, do not fit between the ports %d and %d", n, count, step,
			lowestPort, highest)
	}
	for range 1000 {
		base := lowestPort + rand.IntN(room)
		var ports []int
		for i := range n {
			for j := range count {
				ports = append(ports, base+i*step+j)
			}
		}
		if free, err := reserve(ports); err != nil {
			return 0, err
		} else if free {
			return base, nil
		}
	}
	return 0, errors.New("found no free ports")
}

// lockPorts opens the file in which this process reserves ports, and creates it if
// there is none. The process that reserves port n locks byte n of the file. The
// kernel releases the locks when the process ends.
func lockPorts(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("reserve ports: %w", err)
	}
	portLocks = f
	return nil
}

// reserve reserves all ports if they are free, and reports whether they were.
func reserve(ports []int) (free bool, err error) {
	for i, p := range ports {
		free, err := lockPort(p)
		if err == nil && free {
			continue
		}
		for _, p := range ports[:i] {
			err = errors.Join(err, unlockPort(p))
		}
		return false, err
	}
	for _, p := range ports {
		reservedPorts[p] = true
	}
	return true, nil
}

// lockPort locks a port if neither this process nor another one has reserved it,
// and no program listens on it.
func lockPort(p int) (free bool, err error) {
	if reservedPorts[p] {
		return false, nil
	}
	err = setLock(p, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil // another process has reserved it
	}
	if err != nil {
		return false, err
	}
	ln, err := net.Listen("tcp", Loopback(p))
	if err != nil {
		return false, unlockPort(p) // a program listens on the port
	}
	if err := ln.Close(); err != nil {
		return false, errors.Join(err, unlockPort(p))
	}
	return true, nil
}

func unlockPort(p int) error { return setLock(p, unix.F_UNLCK) }

func setLock(p int, kind int16) error {
	if portLocks == nil {
		return nil
	}
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: int64(p), Len: 1}
	if err := unix.FcntlFlock(portLocks.Fd(), unix.F_SETLK, &l); err != nil {
		return fmt.Errorf("change the reservation of port %d in %s: %w", p, portLocks.Name(), err)
	}
	return nil
}

// Loopback returns the address of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
