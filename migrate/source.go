package migrate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/fsm/rdb"
)

const (
	scanCount = 512 // number of keys that one SCAN visits
	// batchKeys and batchBytes bound the keys and values that are in memory at the
	// same time. A single value may be larger than batchBytes.
	batchKeys  = 256
	batchBytes = 4 << 20
	// guessedBytes is the assumed size of a value if the server does not report
	// sizes.
	guessedBytes = 256 << 10
	// clusterDatabases is the number of databases of the target.
	clusterDatabases = 16
)

// server is a source that is a running Redis.
type server struct {
	link    *link
	match   string
	runID   string
	cluster string // id of the server's cluster if the server is a node of Holdfast, otherwise ""
	noMem   bool   // MEMORY USAGE is not available
}

// open checks that the server answers, and returns the number of keys in each
// of its databases. Unless the parameter named only is -1, the result contains at
// most the database with that number.
func (s *server) open(ctx context.Context, only int) (map[int]int64, error) {
	if only >= clusterDatabases {
		return nil, fmt.Errorf("the source is database %d, and Holdfast has the databases 0 to %d", only,
			clusterDatabases-1)
	}
	if err := s.link.check(ctx); err != nil {
		return nil, err
	}
	replies, err := s.link.once(ctx, 0, command("INFO", "server"), command("INFO", "keyspace"),
		command("SCAN", "0", "COUNT", 1), command("INFO", "holdfast"))
	if err != nil {
		return nil, s.link.explain(err)
	}
	for _, r := range replies {
		if r.err != nil {
			return nil, s.link.explain(r.err)
		}
	}
	s.runID = infoField(replies[0].text(), "run_id")
	s.cluster = infoField(replies[3].text(), "cluster_id")
	sizes := make(map[int]int64)
	for line := range strings.Lines(replies[1].text()) {
		name, rest, ok := strings.Cut(line, ":keys=")
		if !ok || !strings.HasPrefix(name, "db") {
			continue
		}
		db, err1 := strconv.Atoi(name[2:])
		count, _, _ := strings.Cut(rest, ",")
		n, err2 := strconv.ParseInt(count, 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%s: unexpected reply to INFO keyspace: %q", s.link.addr(), line)
		}
		if only < 0 || only == db {
			sizes[db] = n
		}
	}
	return sizes, checkDatabases(sizes)
}

// checkDatabases returns an error if the target lacks a database of the source.
func checkDatabases(sizes map[int]int64) error {
	for db, n := range sizes {
		if db >= clusterDatabases {
			return fmt.Errorf("database %d of the source has %d keys, and Holdfast has the databases 0 to %d: "+
				"move these keys to another database first, or import single databases", db, n, clusterDatabases-1)
		}
	}
	return nil
}

// scan returns the next keys of a database.
func (s *server) scan(ctx context.Context, db int, cursor string) (next string, keys []string, err error) {
	c := command("SCAN", cursor, "COUNT", scanCount)
	if s.match != "" {
		c = append(c, "MATCH", s.match)
	}
	replies, err := s.link.send(ctx, db, c)
	if err != nil {
		return "", nil, err
	}
	if err := replies[0].failed(); err != nil {
		return "", nil, s.link.explain(err)
	}
	pair, ok := replies[0].value.([]any)
	if !ok || len(pair) != 2 {
		return "", nil, fmt.Errorf("%s: unexpected reply to SCAN", s.link.addr())
	}
	next, _ = pair[0].(string)
	list, _ := pair[1].([]any)
	for _, k := range list {
		if text, ok := k.(string); ok {
			keys = append(keys, text)
		}
	}
	slices.Sort(keys) // SCAN may return a key twice
	return next, slices.Compact(keys), nil
}

// batches divides keys into batches of at most batchKeys keys and about
// batchBytes bytes of values.
func (s *server) batches(ctx context.Context, db int, keys []string) ([][]string, error) {
	sizes, err := s.sizes(ctx, db, keys)
	if err != nil {
		return nil, err
	}
	var all [][]string
	begin, sum := 0, int64(0)
	for i := range keys {
		if i > begin && (i-begin >= batchKeys || sum+sizes[i] > batchBytes) {
			all, begin, sum = append(all, keys[begin:i]), i, 0
		}
		sum += sizes[i]
	}
	if begin < len(keys) {
		all = append(all, keys[begin:])
	}
	return all, nil
}

// sizes estimates the memory that the values of keys take.
func (s *server) sizes(ctx context.Context, db int, keys []string) ([]int64, error) {
	sizes := make([]int64, len(keys))
	if !s.noMem && len(keys) > 0 {
		var commands [][]any
		for _, k := range keys {
			commands = append(commands, command("MEMORY", "USAGE", k))
		}
		replies, err := s.link.send(ctx, db, commands...)
		if err != nil {
			return nil, err
		}
		for i, r := range replies {
			s.noMem = s.noMem || r.failed() != nil // the server is too old, or the user may not run MEMORY USAGE
			sizes[i] = r.number()
		}
	}
	if s.noMem {
		for i := range sizes {
			sizes[i] = guessedBytes
		}
	}
	return sizes, nil
}

// read reads the values of keys. The result does not contain keys that no
// longer exist. read requests the value and the time to live of a key in one
// transaction, so that both are from the same moment.
func (s *server) read(ctx context.Context, db int, keys []string) ([]item, error) {
	var commands [][]any
	for _, k := range keys {
		commands = append(commands, command("MULTI"), command("PTTL", k), command("DUMP", k), command("EXEC"))
	}
	replies, err := s.link.send(ctx, db, commands...)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var items []item
	for i, k := range keys {
		exec := replies[4*i+3]
		for _, r := range replies[4*i : 4*i+4] {
			if err := r.failed(); err != nil {
				return nil, s.link.explain(err)
			}
		}
		pair, ok := exec.value.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("%s: unexpected reply to EXEC", s.link.addr())
		}
		if failed, ok := pair[1].(error); ok {
			return nil, s.link.explain(failed)
		}
		ttl, ok1 := pair[0].(int64)
		payload, ok2 := pair[1].(string)
		if !ok1 || !ok2 || ttl == -2 {
			continue
		}
		it := item{db: db, key: k}
		if ttl >= 0 {
			// PTTL rounds down, so the real time to live is longer by up to a
			// millisecond.
			it.life = lifetime{volatile: true, end: now.Add(time.Duration(ttl+1) * time.Millisecond)}
		}
		it.payload, it.reason = repack([]byte(payload))
		items = append(items, it)
	}
	return items, nil
}

// functions returns the code of all libraries of functions.
func (s *server) functions(ctx context.Context) (codes []string, err error) {
	replies, err := s.link.send(ctx, 0, command("FUNCTION", "DUMP"))
	if err != nil {
		return nil, err
	}
	if err := replies[0].failed(); err != nil {
		if strings.Contains(err.Error(), "unknown command") {
			return nil, nil // older than Redis 7.0
		}
		return nil, s.link.explain(err)
	}
	payload := []byte(replies[0].text())
	r := rdb.NewReader(payload, rdb.Limits{String: maxName, Unfolded: 16 * maxName})
	for r.Len() > rdb.TrailerSize {
		if op := r.Byte(); op != opFunction {
			return nil, fmt.Errorf("%s: unexpected reply to FUNCTION DUMP", s.link.addr())
		}
		codes = append(codes, string(r.Text()))
		if r.Err() != nil {
			return nil, fmt.Errorf("%s: the reply to FUNCTION DUMP cannot be read: %w", s.link.addr(), r.Err())
		}
	}
	return codes, nil
}
