package resp

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// trackMode is the tracking mode of a connection.
type trackMode struct {
	on, bcast, optin, optout, noloop bool
	// caching: the last command was CLIENT CACHING. It decides whether the next
	// command or transaction is tracked, even if that command is refused.
	caching  bool
	redirect uint64
	prefixes []string
}

// reads reports whether keys that are read now are to be remembered.
func (t *trackMode) reads() bool {
	return t.on && !t.bcast && (!t.optin || t.caching) && (!t.optout || !t.caching)
}

// sortedIDs returns the sorted keys of a map, so that clients receive messages
// in a reproducible order.
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
	if next.bcast && len(next.prefixes) == 0 && !slices.Contains(c.tracking.prefixes, "") {
		next.prefixes = []string{""}
	}
	l, bytes := &c.srv.cfg.Limits, 0
	for _, p := range next.prefixes {
		bytes += subscriptionSize(p)
	}
	switch {
	case l.MaxPatterns > 0 && len(next.prefixes) > 0 && len(c.tracking.prefixes)+len(next.prefixes) > l.MaxPatterns:
		return fsm.Error("ERR too many prefixes: a connection may track " + strconv.Itoa(l.MaxPatterns) + " (--max-patterns)")
	case bytes > 0 && !c.srv.hub.reserve(bytes):
		return fsm.Error(msgSubscriptionBytes)
	}
	c.trackingOn(next)
	return fsm.OK
}

// refuses returns the error for a connection in mode t that cannot change to
// next, or "" if it can.
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
	return overlapRefusal(t.prefixes, next.prefixes)
}

// overlapRefusal returns the error for a new prefix that overlaps with another
// prefix of the connection, or "". It names the first new prefix that does, and
// prefers to name an existing prefix as the other one.
func overlapRefusal(there, added []string) string {
	i := firstOverlap(there, added)
	if i < 0 {
		return ""
	}
	p := added[i]
	for _, old := range there {
		if overlap(p, old) {
			return "ERR Prefix '" + p + "' overlaps with an existing prefix '" + old + "'. Prefixes for a single client must not overlap."
		}
	}
	for _, other := range added[i+1:] {
		if overlap(p, other) {
			return "ERR Prefix '" + p + "' overlaps with another provided prefix '" + other + "'. Prefixes for a single client must not overlap."
		}
	}
	panic("resp: a prefix overlaps with none")
}

// firstOverlap returns the index of the first new prefix that overlaps with
// another one, or -1. there is sorted, and its prefixes do not overlap, except
// that it may also contain "". Both lists may be very long.
func firstOverlap(there, added []string) int {
	first := len(added)
	for i, p := range added {
		at, _ := slices.BinarySearch(there, p)
		if len(there) > 0 && there[0] == "" || at > 0 && overlap(p, there[at-1]) || at < len(there) && overlap(p, there[at]) {
			first = i
			break
		}
	}
	sorted := make([]int, len(added)) // indices of added
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int { return strings.Compare(added[a], added[b]) })
	// All strings that begin with a prefix directly follow it in sorted order,
	// so the prefixes of the present string form a stack.
	var above []int
	for _, i := range sorted {
		for len(above) > 0 && !strings.HasPrefix(added[i], added[above[len(above)-1]]) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 {
			first = min(first, i, above[len(above)-1])
		}
		above = append(above, i)
	}
	if first == len(added) {
		return -1
	}
	return first
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (c *conn) trackingOn(next trackMode) {
	// Changes that were acknowledged before are not reported: this node's hub
	// processes them before the connection begins to track. A node without a
	// leader does not know them, and may report some needlessly.
	if c.srv.cluster.State().Ready {
		c.hearAll()
	}
	next.on, next.caching = true, c.tracking.caching
	all := next
	all.prefixes = c.tracking.prefixes
	if len(next.prefixes) == 1 {
		at, _ := slices.BinarySearch(all.prefixes, next.prefixes[0])
		all.prefixes = slices.Insert(all.prefixes, at, next.prefixes[0])
	} else {
		all.prefixes = slices.Concat(all.prefixes, next.prefixes)
		slices.Sort(all.prefixes)
	}
	c.tracking = all
	c.edit(func(i *clientInfo) {
		i.tracking, i.bcast, i.broken, i.redirect = true, next.bcast, false, int64(next.redirect)
	})
	c.srv.hub.trackOn(c.id, &tracker{c: c, noloop: next.noloop, behind: c.local, bcast: next.bcast, redirect: next.redirect}, next.prefixes)
}

func (c *conn) trackingOff() {
	if !c.tracking.on {
		return
	}
	c.tracking = trackMode{}
	c.edit(func(i *clientInfo) { i.tracking, i.bcast, i.broken, i.redirect = false, false, false, 0 })
	c.srv.hub.untrack(c.id)
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

// track prepares the group for tracking, if the connection tracks its reads.
// Reads that go through the log are registered when this node applies them. For
// other reads, track announces the keys, and adds a command that returns the
// log index that the group has seen.
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

// tracked ends what track began. It returns the replies without the log index.
func (c *conn) tracked(keys []string, out []byte, err error) []byte {
	if keys == nil {
		return out
	}
	if err != nil {
		c.srv.hub.settle(c.id, keys, 0, false)
		return out
	}
	// If the log index cannot be parsed (the replies grew too large), it counts
	// as 0: there may be too many invalidations, but never too few.
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
