package resp

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"runtime"
	goruntime "runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/platform"
	"github.com/holdfast-kv/holdfast/resp/metrics"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
)

var infoRows = []row{
	{run: info, cmd: &fsm.Command{
		Name: "info", Arity: -1,
		Flags: fsm.Loading | fsm.Stale,
		Group: "server", Since: "1.0.0",
		Complexity: "O(1)",
		Syntax:     "[section [section ...]]",
		Doc:        "Describe this node and its cluster",
		Categories: []string{"dangerous"},
		Tips:       tipsShards,
	}},
}

// infoSection is one section of INFO.
type infoSection struct {
	name  string
	extra bool // printed only for ALL, EVERYTHING or its own name
	write func(p *infoPage)
}

var infoSections = []infoSection{
	{"server", false, infoServer},
	{"clients", false, infoClients},
	{"memory", false, infoMemory},
	{"persistence", false, infoPersistence},
	{"stats", false, infoStats},
	{"replication", false, infoReplication},
	{"cpu", false, infoCPU},
	{"modules", false, func(*infoPage) {}},
	{"commandstats", true, infoCommandstats},
	{"errorstats", false, infoErrorstats},
	{"latencystats", true, infoLatencystats},
	{"cluster", false, infoCluster},
	{"keyspace", false, infoKeyspace},
	{"holdfast", false, infoHoldfast},
}

// infoTitles are the headings that differ from the capitalized name of the
// section.
var infoTitles = map[string]string{"cpu": "CPU"}

// infoPage contains the data for all sections and collects their text.
type infoPage struct {
	strings.Builder
	srv   *Server
	state State
	stats metrics.Totals
	rate  float64
	now   time.Time
}

func (p *infoPage) line(name string, value any) { fmt.Fprintf(p, "%s:%v\r\n", name, value) }

func info(c *conn, args [][]byte) fsm.Reply {
	wanted := make(map[string]bool)
	for _, a := range args[1:] {
		wanted[strings.ToLower(string(a))] = true
	}
	all := wanted["all"] || wanted["everything"]
	standard := len(wanted) == 0 || wanted["default"] || all
	p := &infoPage{srv: c.srv, state: c.srv.cluster.State(), now: time.Now()}
	p.stats, p.rate = c.srv.metrics.SinceReset()
	sections := infoSections
	if c.srv.cfg.Mode == Sentinel {
		sections = sentinelSections
	}
	for _, s := range sections {
		if !wanted[s.name] && !(standard && !s.extra) && !all {
			continue
		}
		if p.Len() > 0 {
			p.WriteString("\r\n")
		}
		title := infoTitles[s.name]
		if title == "" {
			title = upper(s.name[:1]) + s.name[1:]
		}
		p.WriteString("# " + title + "\r\n")
		s.write(p)
	}
	if c.srv.cfg.Mode == Sentinel { // Redis' Sentinel sends a bulk string
		return fsm.Bulk(p.String())
	}
	return fsm.Verbatim(p.String())
}

func infoServer(p *infoPage) {
	executable, err := os.Executable()
	if err != nil {
		executable = ""
	}
	uptime := int64(p.now.Sub(p.srv.run.started) / time.Second)
	p.line("redis_version", RedisVersion)
	p.line("redis_git_sha1", "00000000")
	p.line("redis_git_dirty", 0)
	p.line("redis_build_id", "0")
	p.line("redis_mode", p.srv.cfg.Mode)
	p.line("holdfast_version", p.state.Version)
	p.line("os", platform.Kernel())
	p.line("arch_bits", strconv.IntSize)
	p.line("go_version", runtime.Version())
	p.line("process_id", os.Getpid())
	p.line("run_id", p.srv.run.id)
	p.line("tcp_port", p.srv.port.number)
	p.line("server_time_usec", p.now.UnixMicro())
	p.line("uptime_in_seconds", uptime)
	p.line("uptime_in_days", uptime/(24*3600))
	p.line("hz", 10)
	p.line("configured_hz", 10)
	p.line("executable", executable)
	p.line("config_file", "")
}

func infoClients(p *infoPage) {
	p.line("connected_clients", p.srv.port.guard.Open())
	p.line("unauthenticated_clients", p.srv.port.guard.Unauthenticated())
	p.line("cluster_connections", 0)
	p.line("maxclients", p.srv.cfg.Limits.MaxClients)
	p.line("blocked_clients", p.srv.blocked.Load())
	p.line("tracking_clients", p.srv.hub.Trackers())
	p.line("clients_in_timeout_table", 0)
}

// memoryUse returns the sizes in bytes of the objects on the heap, of the
// memory obtained from the system, and of the resident set of the process.
func memoryUse() (used, mapped, resident uint64) {
	samples := []goruntime.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}}
	goruntime.Read(samples)
	used, mapped = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	if resident = residentSet(); resident == 0 {
		resident = mapped
	}
	return used, mapped, resident
}

// human formats a number of bytes as Redis does, such as 1.50M.
func human(n uint64) string {
	units := "BKMGTP"
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return strconv.FormatUint(n, 10) + "B"
	}
	return strconv.FormatFloat(f, 'f', 2, 64) + units[i:i+1]
}

func infoMemory(p *infoPage) {
	used, mapped, resident := memoryUse()
	total, err := platform.Memory()
	if err != nil {
		total = 0 // unknown
	}
	p.line("used_memory", used)
	p.line("used_memory_human", human(used))
	p.line("used_memory_rss", resident)
	p.line("used_memory_rss_human", human(resident))
	p.line("allocator_allocated", used)
	p.line("allocator_active", mapped)
	p.line("allocator_resident", mapped)
	p.line("total_system_memory", total)
	p.line("total_system_memory_human", human(total))
	p.line("used_memory_scripts_eval", p.state.ScriptBytes)
	p.line("number_of_cached_scripts", p.state.Scripts)
	p.line("number_of_functions", p.state.Functions)
	p.line("number_of_libraries", p.state.Libraries)
	p.line("used_memory_functions", p.state.LibraryBytes)
	p.line("used_memory_dataset", p.state.Dataset)
	p.line("maxmemory", p.state.MaxMemory)
	p.line("maxmemory_human", human(uint64(p.state.MaxMemory)))
	p.line("maxmemory_policy", "noeviction")
	p.line("mem_clients_normal", p.srv.clientMem.Total())
	p.line("mem_fragmentation_ratio", strconv.FormatFloat(float64(resident)/float64(max(used, 1)), 'f', 2, 64))
	p.line("mem_allocator", "go")
}

// flag formats a bool as Redis does.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func infoPersistence(p *infoPage) {
	saving := flag(p.srv.saves.running.Load())
	p.line("loading", 0) // the port is opened only after the state has been loaded
	p.line("async_loading", 0)
	p.line("rdb_changes_since_last_save", 0) // every acknowledged write is on the disks of a majority
	p.line("rdb_bgsave_in_progress", saving)
	p.line("rdb_last_save_time", p.srv.saves.last.Load())
	p.line("rdb_last_bgsave_status", "ok")
	p.line("aof_enabled", 1)
	p.line("aof_rewrite_in_progress", saving)
	p.line("aof_rewrite_scheduled", 0)
	p.line("aof_last_bgrewrite_status", "ok")
	p.line("aof_last_write_status", "ok")
	p.line("aof_current_size", p.state.LogBytes)
	p.line("disk_free_bytes", p.state.DiskFree)
	p.line("disk_total_bytes", p.state.DiskTotal)
	p.line("disk_reserve_bytes", p.state.DiskReserve)
	p.line("disk_writes_refused", flag(p.state.WritesRefused != ""))
}

func infoStats(p *infoPage) {
	var calls, errors uint64
	for _, s := range p.stats.Series {
		calls += s.Calls
	}
	for _, n := range p.stats.Errors {
		errors += n
	}
	p.line("total_connections_received", p.stats.Accepted)
	p.line("total_commands_processed", calls)
	p.line("instantaneous_ops_per_sec", int64(p.rate+0.5))
	p.line("total_net_input_bytes", p.stats.BytesIn)
	p.line("total_net_output_bytes", p.stats.BytesOut)
	p.line("rejected_connections", p.stats.Unserved)
	p.line("expired_keys", p.state.Expired)
	p.line("evicted_keys", 0)
	p.line("evicted_clients", p.srv.metrics.Evicted.Load())
	topics := p.srv.hub.Sizes().Topics
	p.line("pubsub_channels", topics[pubsub.Channels])
	p.line("pubsub_patterns", topics[pubsub.Patterns])
	p.line("pubsubshard_channels", topics[pubsub.ShardChannels])
	keys, items, prefixes := p.srv.hub.TrackedSizes()
	p.line("tracking_total_keys", keys)
	p.line("tracking_total_items", items)
	p.line("tracking_total_prefixes", prefixes)
	p.line("total_error_replies", errors)
}

func infoReplication(p *infoPage) {
	if leader, up, follows := p.srv.follows(); follows {
		p.following(leader, up)
	} else {
		p.line("role", "master")
	}
	p.line("connected_slaves", len(p.state.Replicas))
	for i, r := range p.state.Replicas {
		p.line("slave"+strconv.Itoa(i),
			fmt.Sprintf("ip=%s,port=%s,state=online,offset=%d,lag=0", r.Host, r.Port, p.state.Applied))
	}
	// The replication id is derived from the cluster's id, so it is the same on
	// every node.
	id := sha1.Sum([]byte(p.state.ClusterID))
	p.line("master_failover_state", "no-failover")
	p.line("master_replid", hex.EncodeToString(id[:]))
	p.line("master_replid2", strings.Repeat("0", 40))
	p.line("master_repl_offset", p.state.Applied)
	p.line("second_repl_offset", -1)
	p.line("repl_backlog_active", 0)
	p.line("repl_backlog_size", 0)
	p.line("repl_backlog_first_byte_offset", 0)
	p.line("repl_backlog_histlen", 0)
}

func infoCPU(p *infoPage) {
	for _, u := range []struct {
		who  int
		name string
	}{{syscall.RUSAGE_SELF, ""}, {syscall.RUSAGE_CHILDREN, "_children"}} {
		var r syscall.Rusage
		if err := syscall.Getrusage(u.who, &r); err != nil {
			continue
		}
		p.line("used_cpu_sys"+u.name, fmt.Sprintf("%d.%06d", r.Stime.Sec, r.Stime.Usec))
		p.line("used_cpu_user"+u.name, fmt.Sprintf("%d.%06d", r.Utime.Sec, r.Utime.Usec))
	}
}

// infoCommandstats prints the calls and the time of each command. The time of a
// command on data is that of its whole group, or of its piece of a group of reads:
// from when the connection begins to run the group or piece until it has the
// replies, including the exchange with the cluster.
func infoCommandstats(p *infoPage) {
	for _, name := range slices.Sorted(maps.Keys(p.stats.Series)) {
		s := p.stats.Series[name]
		usec := s.Nanos / 1000
		p.line("cmdstat_"+name, fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
			s.Calls, usec, float64(usec)/float64(max(s.Calls, 1)), s.Rejected, s.Failed))
	}
}

func infoErrorstats(p *infoPage) {
	for _, code := range slices.Sorted(maps.Keys(p.stats.Errors)) {
		p.line("errorstat_"+code, fmt.Sprintf("count=%d", p.stats.Errors[code]))
	}
}

func infoLatencystats(p *infoPage) {
	for _, name := range slices.Sorted(maps.Keys(p.stats.Series)) {
		s := p.stats.Series[name]
		if s.Calls == 0 {
			continue
		}
		us := func(q float64) float64 { return float64(s.Quantile(q).Microseconds()) }
		p.line("latency_percentiles_usec_"+name,
			fmt.Sprintf("p50=%.3f,p99=%.3f,p99.9=%.3f", us(0.5), us(0.99), us(0.999)))
	}
}

func infoCluster(p *infoPage) { p.line("cluster_enabled", flag(p.srv.cfg.Mode == Clustered)) }

func infoKeyspace(p *infoPage) {
	for db, k := range p.state.Keys {
		if k.Keys > 0 {
			p.line("db"+strconv.Itoa(db), fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", k.Keys, k.Volatile))
		}
	}
}

// infoHoldfast prints the section holdfast. It must not repeat the name of a
// field of another section, because clients read INFO into one map.
func infoHoldfast(p *infoPage) {
	st := p.state
	p.line("node_id", st.NodeID)
	p.line("cluster_id", st.ClusterID)
	p.line("raft_role", st.Role)
	p.line("raft_leader", st.Leader)
	p.line("raft_term", st.Term)
	p.line("commit_index", st.Commit)
	p.line("applied_index", st.Applied)
	p.line("ready", flag(st.Ready))
	p.line("log_bytes", st.LogBytes)
	p.line("operations", st.Operations)
	infoLimits(p)
}
