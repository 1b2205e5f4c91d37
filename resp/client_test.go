package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

func TestClient_Names(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	c.expect(
		"CLIENT GETNAME", "$-1", "CLIENT SETNAME bob", "+OK", "CLIENT GETNAME", "$3\nbob", "CLIENT SETNAME ”", "+OK", "CLIENT GETNAME", "$-1",
		"CLIENT SETNAME a·b", "-ERR Client names cannot contain spaces, newlines or special characters.",
		"CLIENT SETINFO LIB-NAME redis-py", "+OK", "CLIENT SETINFO lib-ver 8.0.0", "+OK",
		"CLIENT SETINFO lib-name a·b", "-ERR lib-name cannot contain spaces, newlines or special characters.",
		"CLIENT SETINFO FOO x", "-ERR Unrecognized option 'FOO'",
		"CLIENT SETINFO LIB-NAME", "-ERR wrong number of arguments for 'client|setinfo' command",
		"CLIENT MAINT_NOTIFICATIONS ON", "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.",
		"CLIENT CAPA redirect", "+OK", "CLIENT NO-TOUCH ON", "+OK", "CLIENT NO-TOUCH x", "-ERR syntax error",
		"CLIENT TRACKING OFF", "+OK", "CLIENT TRACKING x", "-ERR syntax error",
	)
}

// TestClient_LongNames checks that the names that CLIENT LIST prints are limited to
// 1024 bytes, however the client sets them.
func TestClient_LongNames(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	long := strings.Repeat("n", 1024)
	c.expect(
		"CLIENT SETNAME "+long+"n", "-ERR Client names cannot be longer than 1024 bytes.", "CLIENT GETNAME", "$-1",
		"HELLO 2 SETNAME "+long+"n", "-ERR Client names cannot be longer than 1024 bytes.", "CLIENT GETNAME", "$-1",
		"CLIENT SETINFO LIB-NAME "+long+"n", "-ERR LIB-NAME cannot be longer than 1024 bytes.",
		"CLIENT SETINFO LIB-VER "+long+"n", "-ERR LIB-VER cannot be longer than 1024 bytes.",
		"CLIENT SETNAME "+long, "+OK", "CLIENT GETNAME", "$1024\n"+long, "CLIENT SETINFO LIB-NAME "+long, "+OK",
	)
}

var infoLine = regexp.MustCompile(`^\$\d+\nid=\d+ addr=127\.0\.0\.1:\d+ laddr=127\.0\.0\.1:\d+ fd=\d+ name=bob age=\d+ idle=\d+ flags=T db=2 sub=0 psub=0 ssub=0 multi=-1 ` +
	`qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd=client\|info user=default redir=-1 resp=2 lib-name=lib lib-ver=1\.2\n\n$`)

func TestClient_Info(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.send("CLIENT SETNAME bob", "SELECT 2", "CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 1.2", "CLIENT NO-TOUCH ON")
	c.want("+OK", "+OK", "+OK", "+OK", "+OK")
	if r := c.do("CLIENT INFO"); !infoLine.MatchString(r) {
		t.Errorf("CLIENT INFO returned %q, want one line with all fields of Redis", r)
	}
	d := dial(t, s)
	d.send("MULTI", "GET a", "GET b")
	d.want("+OK", "+QUEUED", "+QUEUED")
	list := c.do("CLIENT LIST")
	if n := strings.Count(list, "id="); n != 2 || !strings.Contains(list, " flags=x db=0 ") || !strings.Contains(list, " multi=2 ") || !strings.Contains(list, " cmd=multi ") {
		t.Errorf("CLIENT LIST returned %s, want two connections, one of them in a transaction", list)
	}
	for line, want := range map[string]int{
		"CLIENT LIST TYPE normal": 2, "CLIENT LIST TYPE pubsub": 0, "CLIENT LIST TYPE REPLICA": 0,
		"CLIENT LIST ID 1": 1, "CLIENT LIST ID 1 2 99": 2, "CLIENT LIST ID 99": 0,
	} {
		if got := strings.Count(c.do(line), " addr="); got != want {
			t.Errorf("%s: %d connections, want %d", line, got, want)
		}
	}
	c.do("HELLO 3")
	if r := c.do("CLIENT LIST ID 99"); r != "=4\ntxt:\n" {
		t.Errorf("CLIENT LIST without a match returned %q in RESP3, want an empty verbatim string", r)
	}
}

func TestClient_Kill(t *testing.T) {
	s := serve(t, newFake(t))
	open := func() (c *client, id, addr string) {
		c = dial(t, s)
		id = strings.TrimSpace(strings.TrimPrefix(c.do("CLIENT ID"), ":"))
		return c, id, c.conn.LocalAddr().String()
	}
	me, myID, _ := open()
	for _, filter := range []string{"ID %id", "ADDR %addr", "ID %id TYPE normal", "ID %id USER default SKIPME yes"} {
		c, id, addr := open()
		me.expect("CLIENT KILL "+strings.NewReplacer("%id", id, "%addr", addr).Replace(filter), ":1")
		c.wantEOF()
	}
	c, _, addr := open()
	me.expect("CLIENT KILL "+addr, "+OK")
	c.wantEOF()
	c, _, _ = open()
	d, _, _ := open()
	me.expect("CLIENT KILL TYPE pubsub", ":0", "CLIENT KILL ID "+myID, ":0", "CLIENT KILL MAXAGE 3600", ":0", "CLIENT KILL LADDR 1.2.3.4:5", ":0",
		"CLIENT KILL TYPE NORMAL", ":2", "PING", "+PONG")
	c.wantEOF()
	d.wantEOF()
	// A client that kills its own connection gets the reply before the
	// connection is closed. The rest of the pipeline is dropped.
	me.send("CLIENT KILL ID "+myID+" SKIPME no", "SET a 1")
	me.want(":1")
	me.wantEOF()
	me, _, myAddr := open()
	me.send("CLIENT KILL "+myAddr, "SET a 1")
	me.want("+OK")
	me.wantEOF()
	me, _, _ = open()
	me.expect("EXISTS a", ":0",
		"CLIENT KILL x", "-ERR No such client", "CLIENT KILL ID", "-ERR No such client", "CLIENT KILL ID x", "-ERR client-id should be greater than 0", "CLIENT KILL ID 1 ID", "-ERR syntax error", "CLIENT KILL ID 0 SKIPME no", "-ERR client-id should be greater than 0",
		"CLIENT KILL TYPE foo SKIPME no", "-ERR Unknown client type 'foo'", "CLIENT KILL USER x SKIPME no", "-ERR No such user 'x'",
		"CLIENT KILL MAXAGE x SKIPME no", "-ERR maxage is not an integer or out of range", "CLIENT KILL MAXAGE 0 SKIPME no", "-ERR maxage should be greater than 0",
		"CLIENT KILL FOO 1 SKIPME no", "-ERR syntax error")
}

// TestClient_KillPaused checks that a connection that is closed while it waits for
// the end of a CLIENT PAUSE ends at once, and not only when the pause is over.
func TestClient_KillPaused(t *testing.T) {
	s := serve(t, newFake(t))
	me, paused := dial(t, s), dial(t, s)
	id := strings.TrimSpace(strings.TrimPrefix(paused.do("CLIENT ID"), ":"))
	me.expect("CLIENT PAUSE 3600000 WRITE", "+OK")
	paused.send("SET a 1")
	testutil.Eventually(t, "the command to wait", func() bool { return strings.Contains(me.do("CLIENT LIST ID "+id), "cmd=set") })
	me.expect("CLIENT KILL ID "+id, ":1")
	testutil.Eventually(t, "the connection to be gone", func() bool { return !strings.Contains(me.do("CLIENT LIST ID "+id), "id="+id) })
}

// metric returns one value of a server's metrics.
func metric(t testing.TB, s *resp.Server, name string, labels ...string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	for _, c := range s.Metrics().Collectors() {
		if err := reg.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				switch {
				case m.Counter != nil:
					return m.Counter.GetValue()
				case m.Gauge != nil:
					return m.Gauge.GetValue()
				case m.Histogram != nil:
					return float64(m.Histogram.GetSampleCount())
				}
			}
		}
	}
	return 0
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

func TestMetrics(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.send("SET a x", "INCR a", "GET a", "GET b", "GET", "PING", "NOPE", "CLIENT ID", "MULTI", "INCR a", "GET a", "EXEC", "SET b -1", "GET b", "MGET a b")
	for range 15 {
		if _, err := c.reply(); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "the pipeline to be counted", func() bool { return metric(t, s, "holdfast_client_received_bytes_total") > 0 })
	for _, want := range []struct {
		value  float64
		name   string
		labels []string
	}{
		{4, "holdfast_command_seconds", []string{"command", "get"}},
		{2, "holdfast_command_seconds", []string{"command", "set"}},
		{2, "holdfast_command_seconds", []string{"command", "incr"}},
		{2, "holdfast_commands_failed_total", []string{"command", "incr"}},
		{0, "holdfast_commands_failed_total", []string{"command", "get"}},
		{1, "holdfast_commands_rejected_total", []string{"command", "get"}},
		{1, "holdfast_command_seconds", []string{"command", "client|id"}},
		{1, "holdfast_command_seconds", []string{"command", "exec"}},
		{4, "holdfast_errors_total", []string{"code", "ERR"}},
		{1, "holdfast_clients", nil},
		{1, "holdfast_client_connections_total", nil},
	} {
		if got := metric(t, s, want.name, want.labels...); got != want.value {
			t.Errorf("%s %v is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	info := c.do("INFO commandstats errorstats stats")
	for _, want := range []string{"cmdstat_get:calls=4,", "cmdstat_incr:calls=2,", ",rejected_calls=0,failed_calls=2\r\n", "errorstat_ERR:count=4\r\n", "total_error_replies:4\r\n", "total_connections_received:1\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO has no %q:\n%s", want, info)
		}
	}
	c.expect("CONFIG RESETSTAT", "+OK")
	info = c.do("INFO commandstats errorstats stats")
	if strings.Contains(info, "cmdstat_get:") || strings.Contains(info, "errorstat_") || !strings.Contains(info, "total_error_replies:0\r\n") {
		t.Errorf("after CONFIG RESETSTAT, want no statistics in INFO, got\n%s", info)
	}
	if got := metric(t, s, "holdfast_command_seconds", "command", "get"); got != 4 {
		t.Errorf("after CONFIG RESETSTAT, the counter of GET in /metrics is %v, want 4 as before", got)
	}
}

// TestHooks checks that the server counts and logs the connections that the
// guard refuses, by reason.
func TestHooks(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	write := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	})
	s := serve(t, newFake(t), func(c *resp.Config) {
		c.Logger = hclog.New(&hclog.LoggerOptions{Output: write, Level: hclog.Warn})
		c.Limits.MaxClients = 2
	})
	for range 5 {
		c := dial(t, s)
		fmt.Fprint(c.conn, "*1\r\n+PING\r\n")
		c.want("-ERR Protocol error: expected '$', got '+'")
		c.wantEOF()
		_ = c.conn.Close() // the guard waits for the end of the connection, for at most a second
		testutil.Eventually(t, "the connection to be counted as closed", func() bool { return metric(t, s, "holdfast_clients") == 0 })
	}
	c := dial(t, s)
	fmt.Fprint(c.conn, "POST / HTTP/1.1\r\n")
	c.wantEOF()
	testutil.Eventually(t, "the connection to be counted as closed", func() bool { return metric(t, s, "holdfast_clients") == 0 })
	dial(t, s).expect("PING", "+PONG")
	dial(t, s).expect("PING", "+PONG")
	c = dial(t, s)
	c.want("-ERR max number of clients reached")
	for reason, want := range map[string]float64{"protocol": 5, "http": 1, "max_clients": 1} {
		if got := metric(t, s, "holdfast_client_refused_total", "reason", reason); got != want {
			t.Errorf("refused for %s: %v, want %v", reason, got, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for message, most := range map[string]int{"protocol error": 4, "client sent HTTP": 1, "connection refused or closed because of a limit": 1} {
		if n := strings.Count(log.String(), message); n < 1 || n > most {
			t.Errorf("%q was logged %d times, want 1 to %d:\n%s", message, n, most, &log)
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestInfo(t *testing.T) {
	f := newFake(t)
	f.state = resp.State{NodeID: "n1", ClusterID: "c1", Role: "follower", Leader: "n2", Term: 7, Commit: 90, Applied: 89, Ready: true, Version: "v1",
		Replicas: []resp.Replica{{Host: "10.0.0.2", Port: "6379"}, {Host: "n3.example", Port: "6380"}}, Expired: 4, LogBytes: 1234}
	f.state.Keys[0] = resp.DBState{Keys: 3, Volatile: 1}
	s := serve(t, f)
	c := dial(t, s)
	info := c.do("INFO")
	for _, want := range []string{
		"# Server\r\nredis_version:7.0.15\r\n", "\r\n\r\n# Clients\r\n", "redis_mode:standalone\r\n", "role:master\r\nconnected_slaves:2\r\n",
		"slave0:ip=10.0.0.2,port=6379,state=online,offset=89,lag=0\r\n", "slave1:ip=n3.example,port=6380,state=online,offset=89,lag=0\r\n",
		"loading:0\r\n", "aof_enabled:1\r\n", "maxmemory_policy:noeviction\r\n", "cluster_enabled:0\r\n", "connected_clients:1\r\n", "master_repl_offset:89\r\n",
		"# Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\n",
		"# Holdfast\r\nnode_id:n1\r\ncluster_id:c1\r\nraft_role:follower\r\nraft_leader:n2\r\nraft_term:7\r\ncommit_index:90\r\napplied_index:89\r\nready:1\r\n",
	} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO has no %q", want)
		}
	}
	seen := make(map[string]bool)
	for _, line := range strings.Split(c.do("INFO everything"), "\r\n") {
		name, _, ok := strings.Cut(line, ":")
		if ok && seen[name] {
			t.Errorf("INFO has %s twice: clients read it into one map", name)
		}
		seen[name] = true
	}
	for line, sections := range map[string]string{
		"INFO":             "Server Clients Memory Persistence Stats Replication CPU Modules Errorstats Cluster Keyspace Holdfast",
		"INFO all":         "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats Latencystats Cluster Keyspace Holdfast",
		"INFO replication": "Replication", "INFO Server CPU": "Server CPU", "INFO default commandstats": "Server Clients Memory Persistence Stats Replication CPU Modules Commandstats Errorstats Cluster Keyspace Holdfast",
		"INFO nope": "",
	} {
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^# (\w+)\r$`).FindAllStringSubmatch(strings.ReplaceAll(c.do(line), "$", ""), -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != strings.TrimPrefix(sections, "Server ") && strings.Join(got, " ") != sections {
			t.Errorf("%s has sections %v, want %s", line, got, sections)
		}
	}
	c.do("HELLO 3")
	if r := c.do("INFO cluster"); r != "=34\ntxt:# Cluster\r\ncluster_enabled:0\r\n\n" {
		t.Errorf("INFO cluster returned %q in RESP3, want a verbatim string", r)
	}
}

// TestReplicas checks that INFO, ROLE and WAIT report the same number of
// replicas.
func TestReplicas(t *testing.T) {
	f := newFake(t)
	f.state = resp.State{Applied: 42, Replicas: []resp.Replica{{Host: "10.0.0.2", Port: "6379"}}}
	c := dial(t, serve(t, f))
	c.expect(
		"ROLE", "*3\n$6\nmaster\n:42\n*1\n*3\n$8\n10.0.0.2\n$4\n6379\n$2\n42",
		"WAIT 1 100", ":1", "WAIT 0 0", ":1", "WAIT 5 0", ":1", "WAIT x 0", "-ERR value is not an integer or out of range",
		"WAIT 1 -1", "-ERR timeout is negative", "WAIT 1 x", "-ERR timeout is not an integer or out of range",
		"WAITAOF 1 1 0", "*2\n:1\n:1", "WAITAOF 2 1 0", "-ERR value is out of range, must be between 0 and 1",
		"MULTI", "+OK", "SET a 1", "+QUEUED", "WAIT 1 0", "+QUEUED", "EXEC", "*2\n+OK\n:1",
	)
	if r := c.do("INFO replication"); !strings.Contains(r, "connected_slaves:1\r\n") {
		t.Errorf("INFO replication lacks connected_slaves:1: %s", r)
	}
}

func TestConfig(t *testing.T) {
	c := dial(t, serve(t, newFake(t), func(c *resp.Config) { c.DataDir = "/data" }))
	c.expect(
		"CONFIG GET timeout", "*2\n$7\ntimeout\n$1\n0", "CONFIG GET TIMEOUT time*", "*2\n$7\ntimeout\n$1\n0", "CONFIG GET nope", "*0",
		"CONFIG GET maxmemory-policy maxmemory", "*4\n$9\nmaxmemory\n$1\n0\n$16\nmaxmemory-policy\n$10\nnoeviction",
		"CONFIG GET databases", "*2\n$9\ndatabases\n$2\n16", "CONFIG GET dir", "*2\n$3\ndir\n$5\n/data", "CONFIG GET notify-keyspace-events", "*2\n$22\nnotify-keyspace-events\n$0\n",
		"CONFIG GET save appendonly", "*4\n$10\nappendonly\n$3\nyes\n$4\nsave\n$0\n",
		"CONFIG SET notify-keyspace-events ”", "+OK", "CONFIG SET appendonly YES timeout 0", "+OK",
		"CONFIG SET nope 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'",
		"CONFIG SET timeout 5", "-ERR CONFIG SET failed (possibly related to argument 'timeout') - it stays '0': idle connections are not closed",
		"CONFIG SET timeout 0 timeout 0", "-ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
		"CONFIG SET requirepass x timeout 5", "-ERR CONFIG SET failed (possibly related to argument 'timeout') - it stays '0': idle connections are not closed",
		"CONFIG GET requirepass", "*2\n$11\nrequirepass\n$0\n",
		"CONFIG SET a b c", "-ERR syntax error", "CONFIG SET a", "-ERR wrong number of arguments for 'config|set' command",
	)
	c.do("HELLO 3")
	c.expect("CONFIG GET replica-read-only", "%1\n$17\nreplica-read-only\n$3\nyes", "CONFIG GET nope", "%0")
}

// TestConfig_MaxMemoryDefault checks that CONFIG GET takes maxmemory from the state
// only after the linearizable read. Before that read, the node may not know yet
// that CONFIG SET maxmemory default was executed through another node.
func TestConfig_MaxMemoryDefault(t *testing.T) {
	f := newFake(t)
	f.state.MaxMemory = 1
	f.reading = func(func() (<-chan struct{}, func(), error)) { f.state.MaxMemory = 7 }
	dial(t, serve(t, f)).expect("CONFIG GET maxmemory", "*2\n$9\nmaxmemory\n$1\n7")
}

// TestConfig_NoLeader checks that CONFIG GET without a leader waits once, and
// then returns the settings that its node knows, with the feature version below
// FeatureMend and with the newest one.
func TestConfig_NoLeader(t *testing.T) {
	for _, features := range []int{fsm.FeatureMend - 1, fsm.MaxFeatures} {
		f := newFake(t)
		f.machine = fsm.New(command.NewTable())
		if _, err := f.machine.Apply(1, 1, fsm.AppendTermStart(nil, fsm.Header{Term: 1}, fsm.TermStart{ClusterID: "test", Features: features})); err != nil {
			t.Fatal(err)
		}
		waits := 0
		f.before = func(*fsm.Group) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.locals[len(f.locals)-1] {
				return nil
			}
			waits++
			return outcome.ErrNoLeader
		}
		dial(t, serve(t, f)).expect("CONFIG GET notify-keyspace-events", "*2\n$22\nnotify-keyspace-events\n$0\n")
		f.mu.Lock()
		waits += f.featureWaits
		f.mu.Unlock()
		if waits != 1 {
			t.Errorf("feature version %d: CONFIG GET waited for a leader %d times, want 1", features, waits)
		}
	}
}

// TestAdmin_Outcome checks the errors for a change of members. If the outcome
// is unknown, the error tells the operator what to check. If the change was not
// made, the error has a code after which clients retry.
func TestAdmin_Outcome(t *testing.T) {
	f := newFake(t)
	var fails error
	f.admin = func([]string) (string, error) { return "", fmt.Errorf("remove n3: %w", fails) }
	c := dial(t, serve(t, f))
	fails = outcome.NewChangeUnknown(errors.New("leadership lost"))
	c.expect("HOLDFAST REMOVE n3", "-UNKNOWN the outcome of the change is unknown: leadership lost; run \"holdfast status\" to see the members before you try again")
	fails = outcome.ErrNoLeader
	c.expect("HOLDFAST REMOVE n3", "-CLUSTERDOWN no leader, the command was not executed")
}

func TestSnapshots(t *testing.T) {
	f := newFake(t)
	asked, leave := make(chan string, 10), make(chan struct{})
	f.admin = func(args []string) (string, error) {
		asked <- strings.Join(args, " ")
		<-leave
		return "OK", nil
	}
	c := dial(t, serve(t, f))
	c.expect("BGSAVE", "+Background saving started")
	if got := <-asked; got != "snapshot" {
		t.Errorf("BGSAVE requested %q from the cluster, want \"snapshot\"", got)
	}
	c.expect("BGSAVE SCHEDULE", "-ERR Background save already in progress", "SAVE", "-ERR Background save already in progress",
		"BGREWRITEAOF", "-ERR Background save already in progress", "BGSAVE x", "-ERR syntax error")
	close(leave)
	testutil.Eventually(t, "the snapshot to be taken", func() bool { return c.do("BGREWRITEAOF") == "+Background append only file rewriting started\n" })
	testutil.Eventually(t, "SAVE to return OK", func() bool { return c.do("SAVE") == "+OK\n" })
	var at int64
	if _, err := fmt.Sscanf(c.do("LASTSAVE"), ":%d", &at); err != nil || time.Now().Unix()-at > 60 {
		t.Errorf("LASTSAVE returned %d, %v, want a time within the last minute", at, err)
	}
}

// TestAbsent checks the errors of unsupported commands. Commands that client
// libraries may probe for must get the error for an unknown command. The others
// must get an error that says that they are not supported.
func TestAbsent(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	for _, name := range []string{"SENTINEL MASTERS", "REPLCONF x", "MIGRATE x 0"} {
		if r := c.do(name); !strings.HasPrefix(r, "-ERR unknown command '") {
			t.Errorf("%s: %q, want an unknown command", name, r)
		}
	}
	for _, name := range []string{"REPLICAOF a 1", "SLAVEOF a 1", "PSYNC", "SYNC"} {
		if r := c.do(name); !strings.Contains(r, "is not supported: ") {
			t.Errorf("%s returned %q, want an error that says that it is not supported", name, r)
		}
		name, _, _ := strings.Cut(name, " ")
		c.expect("COMMAND INFO "+name, "*1\n$-1")
	}
}

func TestHelp(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	for _, name := range []string{"CLIENT", "COMMAND", "CONFIG", "MEMORY", "SLOWLOG", "LATENCY", "MODULE", "ACL"} {
		if r := c.do(name + " HELP"); !strings.HasPrefix(r, "*") || !strings.Contains(r, "+HELP\n") || !strings.HasPrefix(strings.SplitN(r, "\n", 2)[1], "+"+name+" <subcommand>") {
			t.Errorf("%s HELP returned %q, want the list of its subcommands", name, r)
		}
	}
}
