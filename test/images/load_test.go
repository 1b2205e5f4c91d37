package main

import (
	"errors"
	"net"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestEnter_Groups checks that a client whose connection ends sends the
// remaining groups on new connections, and then ends.
func TestEnter_Groups(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := 1; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return // the listener is closed
			}
			limit := 15 // number of commands after which the connection ends
			if n > 3 {
				limit = 1 << 20
			}
			reply(conn, limit)
		}
	}()
	const groups = 40
	load := clientLoad{stop: make(chan struct{})}
	load.enter(0, l.Addr().String(), false, 1, groups)
	load.wg.Wait()
	sent, commands := 0, 0
	for _, s := range load.connections {
		ends := make(map[int]bool)
		for _, c := range s.cmds {
			ends[c.group] = true
		}
		sent, commands = sent+len(ends), commands+len(s.cmds)
	}
	if sent != groups || len(load.connections) != 4 || commands <= groups {
		t.Errorf("%d groups with %d commands on %d connections, want %d groups, more commands, 4 connections", sent,
			commands, len(load.connections), groups)
	}
}

// reply sends OK as the reply to each of the given number of commands. It closes
// the connection then, or when the client closes it.
func reply(conn net.Conn, commands int) {
	defer conn.Close()
	var in []byte
	buf := make([]byte, 4096)
	for {
		_, rest, err := respwire.Parse(in)
		switch {
		case errors.Is(err, respwire.ErrIncomplete):
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			in = append(in, buf[:n]...)
			continue
		case err != nil || commands == 0:
			return
		}
		in = rest
		commands--
		if _, err := conn.Write([]byte("+OK\r\n")); err != nil {
			return
		}
	}
}
