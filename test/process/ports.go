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

// Ports of clusters lie below the range from which the system takes the local
// ports of outgoing connections: a node that is restarted must find its port
// free, and no client of somebody else's may sit on it meanwhile.
const (
	lowestPort  = 10240
	highestPort = 30000
)

var (
	portsMu  sync.Mutex
	portsOut = make(map[int]bool) // given to somebody in this process
)

// FreePorts returns the first of n runs of ports, each count long and step
// apart, that nobody listens on. They stay reserved in this process.
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
				portsOut[p] = true
			}
			return base, nil
		}
	}
	return 0, errors.New("found no free ports")
}

func allFree(ports []int) bool {
	for _, p := range ports {
		if portsOut[p] {
			return false
		}
		ln, err := net.Listen("tcp", loopback(p))
		if err != nil {
			return false
		}
		if err := ln.Close(); err != nil {
			return false
		}
	}
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
