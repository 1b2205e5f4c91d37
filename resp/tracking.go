package resp

import (
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

func clientTracking(c *conn, args [][]byte) fsm.Reply {
	next := pubsub.Mode{}
	for i := 3; i < len(args); i++ {
		more := i+1 < len(args)
		switch option := strings.ToLower(string(args[i])); {
		case option == "redirect" && more:
			i++
			if next.Redirect != 0 {
				return fsm.Error("ERR A client can only redirect to a single other client")
			}
			id, refusal, ok := intArg(args[i])
			if !ok {
				return refusal
			}
			if id <= 0 || c.srv.connection(uint64(id)) == nil {
				return fsm.Error("ERR The client ID you want redirect to does not exist")
			}
			next.Redirect = uint64(id)
		case option == "bcast":
			next.BCast = true
		case option == "optin":
			next.OptIn = true
		case option == "optout":
			next.OptOut = true
		case option == "noloop":
			next.NoLoop = true
		case option == "prefix" && more:
			i++
			next.Prefixes = append(next.Prefixes, string(args[i]))
		default:
			return fsm.Error(msgSyntax)
		}
	}
	on, ok := onOff(args[2])
	switch {
	case !ok:
		return fsm.Error(msgSyntax)
	case !on:
		c.trackingOff()
		return fsm.OK
	}
	if text := c.tracking.Refuses(&next); text != "" {
		return fsm.Error(text)
	}
	if next.BCast && len(next.Prefixes) == 0 && !slices.Contains(c.tracking.Prefixes, "") {
		next.Prefixes = []string{""}
	}
	l, bytes := &c.srv.cfg.Limits, next.Size()
	switch {
	case l.MaxPatterns > 0 && len(next.Prefixes) > 0 && len(c.tracking.Prefixes)+len(next.Prefixes) > l.MaxPatterns:
		return fsm.Error("ERR too many prefixes: a connection may track " +
			strconv.Itoa(l.MaxPatterns) + " (--max-patterns)")
	case bytes > 0 && !c.srv.hub.Reserve(bytes):
		return fsm.Error(msgSubscriptionBytes)
	}
	c.trackingOn(next)
	return fsm.OK
}

// trackingChange is the effect of a command on the connection's tracking. EXEC
// must know this effect before it runs the transaction: see trackFirst.
type trackingChange int

const (
	trackingUnchanged trackingChange = iota
	trackingStarts                   // reads after the command are tracked
	trackingEnds
)

// trackingOf implements hooks.tracks for CLIENT TRACKING.
func trackingOf(args [][]byte) trackingChange {
	if strings.EqualFold(string(args[2]), "off") {
		return trackingEnds
	}
	return trackingStarts
}

// cachingOf implements hooks.tracks for CLIENT CACHING.
func cachingOf(args [][]byte) trackingChange {
	if strings.EqualFold(string(args[2]), "yes") {
		return trackingStarts
	}
	return trackingUnchanged
}

func (c *conn) trackingOn(next pubsub.Mode) {
	// If there is a leader, this node's hub first processes all changes that were
	// acknowledged before this command. So the connection gets no invalidations for
	// them. Without a leader, this node does not know these changes, and the
	// connection may get invalidations for some of them.
	if c.srv.cluster.State().Ready {
		c.awaitCommittedEvents()
	}
	c.tracking.Add(&next)
	c.edit(func(i *clientInfo) {
		i.tracking, i.bcast, i.broken, i.redirect = true, next.BCast, false, int64(next.Redirect)
	})
	c.srv.hub.TrackOn(c.sub, &next, c.local)
}

func (c *conn) trackingOff() {
	if !c.tracking.On {
		return
	}
	c.tracking = pubsub.Mode{}
	c.edit(func(i *clientInfo) { i.tracking, i.bcast, i.broken, i.redirect = false, false, false, 0 })
	c.srv.hub.Untrack(c.id)
}

func clientCaching(c *conn, args [][]byte) fsm.Reply {
	t := &c.tracking
	if !t.On {
		return fsm.Error("ERR CLIENT CACHING can be called only when the client is in tracking mode " +
			"with OPTIN or OPTOUT mode enabled")
	}
	switch strings.ToLower(string(args[2])) {
	case "yes":
		if !t.OptIn {
			return fsm.Error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
		}
	case "no":
		if !t.OptOut {
			return fsm.Error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
		}
	default:
		return fsm.Error(msgSyntax)
	}
	t.Caching = true
	return fsm.OK
}

func clientTrackinginfo(c *conn, args [][]byte) fsm.Reply {
	t := &c.tracking
	flags := []fsm.Reply{fsm.Bulk("off")}
	if t.On {
		flags[0] = fsm.Bulk("on")
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"bcast", t.BCast}, {"optin", t.OptIn}, {"caching-yes", t.OptIn && t.Caching}, {"optout", t.OptOut},
		{"caching-no", t.OptOut && t.Caching}, {"noloop", t.NoLoop}, {"broken_redirect", c.redirectBroken()}} {
		if f.on {
			flags = append(flags, fsm.Bulk(f.name))
		}
	}
	return fsm.Map([]fsm.Reply{
		fsm.Bulk("flags"), fsm.Set(flags),
		fsm.Bulk("redirect"), clientGetredir(c, args),
		fsm.Bulk("prefixes"), fsm.Strings(t.Prefixes...),
	})
}

func (c *conn) redirectBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.broken
}

func clientGetredir(c *conn, args [][]byte) fsm.Reply {
	if !c.tracking.On {
		return fsm.Int(-1)
	}
	return fsm.Int(int64(c.tracking.Redirect))
}

// track prepares the group for tracking, if the connection tracks its reads. Reads
// that go through the log are registered when this node applies them. For other
// reads, track announces the keys, and adds a command that returns the log index at
// which the group is executed.
func (c *conn) track() (keys []string) {
	if !c.tracking.Reads() {
		return nil
	}
	if c.group.Write {
		c.group.Track()
		return nil
	}
	if len(c.batch.reads) == 0 {
		return nil
	}
	c.group.Command(c.srv.cmds.position, c.db, [][]byte{[]byte(fsm.PositionCommand)})
	c.srv.hub.Arm(c.id, c.batch.reads)
	return c.batch.reads
}

// tracked registers the reads that track has announced. It returns the replies
// without the log index.
func (c *conn) tracked(keys []string, out []byte, err error) []byte {
	if keys == nil {
		return out
	}
	if err != nil {
		c.srv.hub.Settle(c.id, keys, 0, false)
		return out
	}
	// If the log index cannot be parsed (the replies grew too large), it counts
	// as 0: there may be too many invalidations, but never too few.
	rest, at, _ := splitPosition(out)
	c.srv.hub.Settle(c.id, keys, at, true)
	return rest
}

// rememberReads adds the keys that a command reads to the keys of the group.
func (c *conn) rememberReads(cmd *fsm.Command, args [][]byte) {
	cmd = cmd.Routed(args)
	if cmd.Flags&fsm.ReadOnly == 0 {
		return
	}
	for _, i := range cmd.KeyPositions(args) {
		c.batch.reads = append(c.batch.reads, string(args[i]))
	}
}
