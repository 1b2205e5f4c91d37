package process_test

import (
	"testing"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestLock_SameOwner checks an owner that asks again on another connection,
// because its first one seems to hang. The two connections wait at different
// nodes. When the owner gets the lock, both connections get a reply with the
// same token, and the other waiters keep their positions.
func TestLock_SameOwner(t *testing.T) {
	c := startCluster(t)
	at := append(c.others(c.leader()), c.leader())
	want(t, at[0], "OK", "SET", "lock", "first", "NX", "PX", "600000")
	type answer struct {
		token respwire.Value
		err   error
	}
	ask := func(i int, owner string) chan answer {
		conn, err := respwire.Dial(t.Context(), "tcp", at[i].Clients)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conn.Limit = waitLimit
		got := make(chan answer, 1)
		go func() {
			token, err := respwire.NoError(conn.Do("LOCK", "ACQUIRE", "lock", owner, "PX", "600000", "WAIT", "0"))
			got <- answer{token, err}
		}()
		return got
	}
	var all []chan answer
	for i, owner := range []string{"me", "you", "me"} {
		all = append(all, ask(i, owner))
		c.awaitWaiters("lock", i+1)
	}
	want(t, at[0], "(integer) 1", "DELIFEQ", "lock", "first")
	one, two := <-all[0], <-all[2]
	if one.err != nil || two.err != nil || one.token.Text != two.token.Text {
		t.Fatalf("the owner got %v, %v and %v, %v", one.token, one.err, two.token, two.err)
	}
	c.awaitWaiters("lock", 1)
	want(t, at[2], "(integer) 1", "LOCK", "RELEASE", "lock", "me", one.token.Text)
	if you := <-all[1]; you.err != nil {
		t.Error(you.err)
	}
	want(t, at[1], "you", "GET", "lock")
}
