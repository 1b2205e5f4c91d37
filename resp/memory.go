package resp

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/fsm"
)

var memoryRows = []row{
	{cmd: &fsm.Command{
		Name: "memory", Arity: -2,
		Group: "server", Since: "4.0.0",
		Complexity: "Depends on subcommand.",
		Doc:        "Commands about this node's memory",
	}, sub: []row{
		{run: memoryUsage, cmd: &fsm.Command{
			Name: "usage", Arity: -3, Keys: fsm.Keys{First: 2, Last: 2, Step: 1},
			Flags:      fsm.ReadOnly,
			Access:     fsm.Access{Mode: "RO"},
			Since:      "4.0.0",
			Complexity: "O(N) where N is the number of samples",
			Syntax:     "key [SAMPLES count]",
			Doc:        "Estimate the memory that a key and its value take",
		}},
		{run: memoryDoctor, cmd: &fsm.Command{
			Name: "doctor", Arity: 2,
			Since:      "4.0.0",
			Complexity: "O(1)",
			Doc:        "Report what is unusual about the memory",
			Tips:       tipsShards,
		}},
		{run: memoryMallocStats, cmd: &fsm.Command{
			Name: "malloc-stats", Arity: 2,
			Since:      "4.0.0",
			Complexity: "Depends on how much memory is allocated, could be slow",
			Doc:        "Show the statistics of Go's allocator",
			Tips:       tipsShards,
		}},
		{run: memoryPurge, cmd: &fsm.Command{
			Name: "purge", Arity: 2,
			Since:      "4.0.0",
			Complexity: "O(N) where N is the size of the heap",
			Doc:        "Return free memory to the operating system",
			Tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		}},
		{run: memoryStats, cmd: &fsm.Command{
			Name: "stats", Arity: 2,
			Since:      "4.0.0",
			Complexity: "O(1)",
			Doc:        "Show memory statistics, under Redis' names where they apply",
			Tips:       tipsShards,
		}},
		helpRow("4.0.0"),
	}},
}

// footprint contains the memory of the process at one moment, in bytes, and the
// number of keys.
type footprint struct {
	runtime.MemStats
	resident uint64 // resident set, or Sys minus HeapReleased if the system does not report it
	peak     uint64 // maximum of HeapAlloc in all footprints
	keys     int
}

// peakHeap is the maximum of HeapAlloc in all footprints since the process
// started.
var peakHeap atomic.Uint64

func (s *Server) footprint() *footprint {
	f := &footprint{}
	runtime.ReadMemStats(&f.MemStats)
	for {
		old := peakHeap.Load()
		if f.HeapAlloc <= old || peakHeap.CompareAndSwap(old, f.HeapAlloc) {
			break
		}
	}
	f.peak = peakHeap.Load()
	if f.resident = residentSet(); f.resident == 0 {
		f.resident = f.Sys - f.HeapReleased
	}
	for _, db := range s.cluster.State().Keys {
		f.keys += db.Keys
	}
	return f
}

// residentSet returns the size of the resident set in bytes, or 0 if the system
// does not report it.
func residentSet() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	words := bytes.Fields(b)
	if len(words) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(words[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// startHeap is the approximate heap of the process without data.
const startHeap = 4 << 20

func ratio(a, b uint64) float64 { return float64(a) / float64(max(b, 1)) }

// memoryStats returns Redis' fields in Redis' order. Fields that do not apply
// are 0. Go does not report which part of the heap is data. So memoryStats
// subtracts startHeap, messages for clients, and cached scripts from the heap,
// and counts the rest as data.
func memoryStats(c *conn, args [][]byte) fsm.Reply {
	f := c.srv.footprint()
	var out []fsm.Reply
	number := func(name string, n uint64) { out = append(out, fsm.Bulk(name), fsm.Int(int64(n))) }
	double := func(name string, v float64) { out = append(out, fsm.Bulk(name), fsm.Double(v)) }
	difference := func(name string, a, b uint64) { out = append(out, fsm.Bulk(name), fsm.Int(int64(a)-int64(b))) }
	st := c.srv.cluster.State()
	pushes := 0
	for _, d := range c.srv.connections() {
		_, n := d.out.Pending()
		pushes += n
	}
	start := min(uint64(startHeap), f.HeapAlloc)
	overhead := start + uint64(pushes+st.ScriptBytes)
	data := f.HeapAlloc - min(overhead, f.HeapAlloc)
	number("peak.allocated", f.peak)
	number("total.allocated", f.HeapAlloc)
	number("startup.allocated", start)
	number("replication.backlog", 0)
	number("clients.slaves", 0)
	number("clients.normal", uint64(pushes))
	number("cluster.links", 0)
	number("aof.buffer", 0)
	number("lua.caches", uint64(st.ScriptBytes))
	number("functions.caches", 0)
	for db, keys := range st.Keys {
		if keys.Keys > 0 {
			out = append(out, fsm.Bulk("db."+strconv.Itoa(db)), fsm.Map([]fsm.Reply{
				fsm.Bulk("overhead.hashtable.main"), fsm.Int(int64(keys.Keys * keyOverhead)),
				fsm.Bulk("overhead.hashtable.expires"), fsm.Int(int64(keys.Volatile * keyOverhead)),
				fsm.Bulk("overhead.hashtable.slot-to-keys"), fsm.Zero,
			}))
		}
	}
	number("overhead.total", overhead)
	number("keys.count", uint64(f.keys))
	perKey := uint64(0)
	if f.keys > 0 {
		perKey = data / uint64(f.keys)
	}
	number("keys.bytes-per-key", perKey)
	number("dataset.bytes", data)
	double("dataset.percentage", 100*ratio(data, f.HeapAlloc-start))
	double("peak.percentage", 100*ratio(f.HeapAlloc, f.peak))
	number("allocator.allocated", f.HeapAlloc)
	number("allocator.active", f.HeapInuse)
	number("allocator.resident", f.HeapSys-f.HeapReleased)
	double("allocator-fragmentation.ratio", ratio(f.HeapInuse, f.HeapAlloc))
	difference("allocator-fragmentation.bytes", f.HeapInuse, f.HeapAlloc)
	double("allocator-rss.ratio", ratio(f.HeapSys-f.HeapReleased, f.HeapInuse))
	difference("allocator-rss.bytes", f.HeapSys-f.HeapReleased, f.HeapInuse)
	double("rss-overhead.ratio", ratio(f.resident, f.HeapSys-f.HeapReleased))
	difference("rss-overhead.bytes", f.resident, f.HeapSys-f.HeapReleased)
	double("fragmentation", ratio(f.resident, f.HeapAlloc))
	difference("fragmentation.bytes", f.resident, f.HeapAlloc)
	return fsm.Map(out)
}

// keyOverhead is the approximate memory of a key in bytes, without its name and
// its value. It consists of the object, its node in the tree, and the
// allocator's rounding.
const keyOverhead = 160

func memoryUsage(c *conn, args [][]byte) fsm.Reply {
	switch len(args) {
	case 3:
	case 5:
		if !strings.EqualFold(string(args[3]), "samples") {
			return fsm.Error(msgSyntax)
		}
		if n, refusal, ok := intArg(args[4]); !ok {
			return refusal
		} else if n < 0 {
			return fsm.Error(msgSyntax)
		}
	default:
		return fsm.Error(msgSyntax)
	}
	cmd := c.srv.cmds.internal(fsm.MemoryCommand)
	c.group.Command(cmd, c.db, [][]byte{[]byte(cmd.Name), args[2]})
	out, err := c.do(c.local)
	c.group.Reset(c.proto, c.id)
	if err != nil {
		return fsm.Error(errorText(err))
	}
	size, isSize := bytes.CutPrefix(out, []byte(":"))
	n, err := strconv.Atoi(string(bytes.TrimSpace(size)))
	switch {
	case bytes.HasPrefix(out, []byte("-")), isSize && err != nil:
		return fsm.Error("ERR unexpected reply to MEMORY USAGE")
	case !isSize:
		return fsm.Null
	}
	return fsm.Int(int64(keyOverhead + len(args[2]) + n))
}

func memoryDoctor(c *conn, args [][]byte) fsm.Reply {
	f := c.srv.footprint()
	var b strings.Builder
	if f.HeapAlloc < 64<<20 {
		b.WriteString("This node has little data, so its memory use is not meaningful yet.\n")
	} else {
		if f.peak > f.HeapAlloc*3/2 {
			fmt.Fprintf(&b, "The peak of the heap, %d bytes, was more than 1.5 times its current size: "+
				"MEMORY PURGE returns free memory to the system.\n", f.peak)
		}
		if float64(f.resident) > 2.5*float64(f.HeapAlloc) {
			fmt.Fprintf(&b, "The resident memory is %.1f times the heap: "+
				"a lower GOGC saves memory and costs processor time.\n", ratio(f.resident, f.HeapAlloc))
		}
		if b.Len() == 0 {
			b.WriteString("This node's memory use is normal.\n")
		}
	}
	b.WriteString("See MEMORY STATS, INFO memory, and the go_memstats metrics of the HTTP port.\n")
	return fsm.Verbatim(b.String())
}

func memoryMallocStats(c *conn, args [][]byte) fsm.Reply {
	f := c.srv.footprint()
	var b strings.Builder
	fmt.Fprintf(&b, "Go %s\n", strings.TrimPrefix(runtime.Version(), "go"))
	for _, l := range []struct {
		name string
		n    uint64
	}{
		{"heap_alloc", f.HeapAlloc}, {"heap_inuse", f.HeapInuse}, {"heap_idle", f.HeapIdle},
		{"heap_released", f.HeapReleased}, {"heap_sys", f.HeapSys}, {"heap_objects", f.HeapObjects},
		{"stack_inuse", f.StackInuse}, {"mspan_inuse", f.MSpanInuse}, {"gc_sys", f.GCSys},
		{"other_sys", f.OtherSys}, {"sys", f.Sys}, {"resident", f.resident},
		{"mallocs", f.Mallocs}, {"frees", f.Frees}, {"next_gc", f.NextGC},
		{"gc_cycles", uint64(f.NumGC)}, {"gc_pause_total_ns", f.PauseTotalNs},
	} {
		fmt.Fprintf(&b, "%s:%d\n", l.name, l.n)
	}
	return fsm.Verbatim(b.String())
}

func memoryPurge(c *conn, args [][]byte) fsm.Reply {
	debug.FreeOSMemory()
	return fsm.OK
}
