package resp

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// trackMode is how a connection tracks keys.
type trackMode struct {
	on, bcast, optin, optout, noloop bool
	// caching: CLIENT CACHING was the last command, and the next one (or the next
	// transaction) is, or is not, to be tracked, even if it is refused.
	caching  bool
	redirect uint64
	prefixes []string
}

// reads reports whether keys that are read now are to be remembered.
func (t *trackMode) reads() bool {
	return t.on && !t.bcast && (!t.optin || t.caching) && (!t.optout || !t.caching)
}

// sortedIDs returns the keys of a map in order, so that clients are told in an
// order that does not change from run to run.
func sortedIDs[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func clientTracking(c *conn, args [][]byte) fsm.Reply {
	next := trackMode{}
	for i := 3; i < len(args); i++ {
		more := i+1 < len(args)
		switch option := strings.ToLower(string(args[i])); {
		case option == "redirect" && more:
			i++
			if next.redirect != 0 {
				return fsm.Error("ERR A client can only redirect to a single other client")
			}
			id, refusal, ok := intArg(args[i])
			if !ok {
				return refusal
			}
			if id <= 0 || c.srv.connection(uint64(id)) == nil {
				return fsm.Error("ERR The client ID you want redirect to does not exist")
			}
			next.redirect = uint64(id)
		case option == "bcast":
			next.bcast = true
		case option == "optin":
			next.optin = true
		case option == "optout":
			next.optout = true
		case option == "noloop":
			next.noloop = true
		case option == "prefix" && more:
			i++
			next.prefixes = append(next.prefixes, string(args[i]))
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
	if text := c.tracking.refuses(&next); text != "" {
		return fsm.Error(text)
	}
	if next.bcast && len(next.prefixes) == 0 {
		next.prefixes = []string{""}
	}
	c.trackingOn(next)
	return fsm.OK
}

// refuses says why a connection that tracks as t says cannot go over to next; ""
// if it can.
func (t *trackMode) refuses(next *trackMode) string {
	switch {
	case !next.bcast && len(next.prefixes) > 0:
		return "ERR PREFIX option requires BCAST mode to be enabled"
	case t.on && t.bcast != next.bcast:
		return "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."
	case next.bcast && (next.optin || next.optout):
		return "ERR OPTIN and OPTOUT are not compatible with BCAST"
	case next.optin && next.optout:
		return "ERR You can't specify both OPTIN mode and OPTOUT mode"
	case next.optin && t.optout || next.optout && t.optin:
		return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode."
	}
	for i, p := range next.prefixes {
		for _, old := range t.prefixes {
			if overlap(p, old) {
				return "ERR Prefix '" + p + "' overlaps with an existing prefix '" + old + "'. Prefixes for a single client must not overlap."
			}
		}
		for _, other := range next.prefixes[i+1:] {
			if overlap(p, other) {
				return "ERR Prefix '" + p + "' overlaps with another provided prefix '" + other + "'. Prefixes for a single client must not overlap."
			}
		}
	}
	return ""
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (c *conn) trackingOn(next trackMode) {
	// Changes that were acknowledged before are not reported: this node's hub has
	// been told of them before the connection begins to track. While the node has no
	// way to the leader it does not know them, and may report some needlessly.
	if c.srv.cluster.State().Ready {
		c.hearAll()
	}
	next.on, next.caching = true, c.tracking.caching
	all := next
	all.prefixes = slices.Concat(c.tracking.prefixes, next.prefixes)
	slices.Sort(all.prefixes)
	c.tracking = all
	c.edit(func(i *clientInfo) {
		i.tracking, i.bcast, i.broken, i.redirect = true, next.bcast, false, int64(next.redirect)
	})
	h := c.srv.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.onLocked(c.id, &tracker{c: c, noloop: next.noloop, behind: c.local, bcast: next.bcast, redirect: next.redirect}, next.prefixes)
}

func (c *conn) trackingOff() {
	if !c.tracking.on {
		return
	}
	c.tracking = trackMode{}
	c.edit(func(i *clientInfo) { i.tracking, i.bcast, i.broken, i.redirect = false, false, false, 0 })
	h := c.srv.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.offLocked(c.id)
	h.wantLocked()
}

func clientCaching(c *conn, args [][]byte) fsm.Reply {
	t := &c.tracking
	if !t.on {
		return fsm.Error("ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled")
	}
	switch strings.ToLower(string(args[2])) {
	case "yes":
		if !t.optin {
			return fsm.Error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
		}
	case "no":
		if !t.optout {
			return fsm.Error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
		}
	default:
		return fsm.Error(msgSyntax)
	}
	t.caching = true
	return fsm.OK
}

func clientTrackinginfo(c *conn, args [][]byte) fsm.Reply {
	t := &c.tracking
	flags := []fsm.Reply{fsm.Bulk("off")}
	if t.on {
		flags[0] = fsm.Bulk("on")
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"bcast", t.bcast}, {"optin", t.optin}, {"caching-yes", t.optin && t.caching}, {"optout", t.optout},
		{"caching-no", t.optout && t.caching}, {"noloop", t.noloop}, {"broken_redirect", c.redirectBroken()}} {
		if f.on {
			flags = append(flags, fsm.Bulk(f.name))
		}
	}
	return fsm.Map([]fsm.Reply{
		fsm.Bulk("flags"), fsm.Set(flags),
		fsm.Bulk("redirect"), clientGetredir(c, args),
		fsm.Bulk("prefixes"), fsm.Strings(t.prefixes...),
	})
}

func (c *conn) redirectBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.broken
}

func clientGetredir(c *conn, args [][]byte) fsm.Reply {
	if !c.tracking.on {
		return fsm.Int(-1)
	}
	return fsm.Int(int64(c.tracking.redirect))
}

// track prepares the group for being tracked, if the connection tracks what it
// reads. Reads that go through the log are remembered on its way back; the keys
// of others are noted now, and the group then answers the place in the log that
// it saw, too.
func (c *conn) track() (keys []string) {
	if !c.tracking.reads() {
		return nil
	}
	if c.group.Write {
		c.group.Track()
		return nil
	}
	if len(c.reads) == 0 {
		return nil
	}
	c.group.Command(c.srv.positionRow, c.db, [][]byte{[]byte(fsm.PositionCommand)})
	c.srv.hub.arm(c.id, c.reads)
	return c.reads
}

// tracked ends what track has begun and returns the replies without the place.
func (c *conn) tracked(keys []string, out []byte, err error) []byte {
	if keys == nil {
		return out
	}
	if err != nil {
		c.srv.hub.settle(c.id, keys, 0, false)
		return out
	}
	// A position that cannot be read (the replies grew too large) counts as 0:
	// too many invalidations, and none too few.
	rest, at, _ := splitPosition(out)
	c.srv.hub.settle(c.id, keys, at, true)
	return rest
}

// noteReads adds the keys that a command reads to those of the group.
func (c *conn) noteReads(cmd *fsm.Command, args [][]byte) {
	cmd = cmd.Routed(args)
	if cmd.Flags&fsm.ReadOnly == 0 {
		return
	}
	for _, i := range cmd.KeyPositions(args) {
		c.reads = append(c.reads, string(args[i]))
	}
}
