package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
)

// The ports of clusters are between lowestPort and highestPort. This is below
// the range from which the system takes the local ports of outgoing
// connections. A node that is restarted must find its port free, so no outgoing
// connection of another program may take the port in the meantime.
const (
	lowestPort  = 10240
	highestPort = 30000
)

var (
	portsMu       sync.Mutex
	reservedPorts = make(map[int]bool) // reserved in this process
)

// FreePorts returns the first port of n ranges in which no program listens.
// Each range has count ports, and the ranges begin step apart. The ports stay
// reserved in this process.
func FreePorts(n, count, step int) (base int, err error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	highest := highestPort
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var low int
		if _, err := fmt.Sscan(string(b), &low); err == nil && low > lowestPort+5000 {
			highest = low - 1
		}
	}
	room := highest - lowestPort - (n-1)*step - count
	for range 1000 {
		base := lowestPort + rand.IntN(room)
		var ports []int
		for i := range n {
			for j := range count {
				ports = append(ports, base+i*step+j)
			}
		}
		if allFree(ports) {
			for _, p := range ports {
				reservedPorts[p] = true
			}
			return base, nil
		}
	}
	return 0, errors.New("found no free ports")
}

func allFree(ports []int) bool {
	for _, p := range ports {
		if reservedPorts[p] {
			return false
		}
		ln, err := net.Listen("tcp", Loopback(p))
		if err != nil {
			return false
		}
		if err := ln.Close(); err != nil {
			return false
		}
	}
	return true
}

// Loopback returns the address of a port on 127.0.0.1.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
