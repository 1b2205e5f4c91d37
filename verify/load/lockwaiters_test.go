package load

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// listenAs returns the address of a server that runs until the test ends. The
// server answers each command with the entry of replies for the command's name.
func listenAs(t *testing.T, replies map[string]string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for r := bufio.NewReader(conn); ; {
					cmd, err := respwire.Read(r)
					if err != nil || len(cmd.Elems) == 0 {
						return
					}
					if _, err := fmt.Fprintf(conn, "%s\r\n", replies[cmd.Elems[0].Text]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// TestCollectLocks_RemovedNode checks that collectLocks leaves out the history of
// a removed node. The reply of such a node to LOCK HISTORY lacks all grants since
// its removal, and the checker would report them as missing.
func TestCollectLocks_RemovedNode(t *testing.T) {
	history := "*2\r\n$6\r\ngrants\r\n*0"
	member := listenAs(t, map[string]string{"EXISTS": ":0", "LOCK": history})
	removed := listenAs(t, map[string]string{"LOCK": history,
		"EXISTS": "-CLUSTERDOWN this node was removed from the cluster, the command was not executed"})
	l := &Load{cfg: Config{Addrs: []string{removed, member}, Waiters: 1}, rec: newRecorder()}
	if err := l.collectLocks(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, want := len(l.rec.h.Pasts), len(fairLocks); got != want {
		t.Fatalf("%d histories, want %d: one for each lock", got, want)
	}
	for _, past := range l.rec.h.Pasts {
		if past.Node != member {
			t.Errorf("history of %s from %s, want only those of %s", past.Lock, past.Node, member)
		}
	}
}
