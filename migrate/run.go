package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// stateEvery is the minimum time between two writes of the state file.
const stateEvery = 500 * time.Millisecond

// Config describes an import.
type Config struct {
	Server *Endpoint // the running server that is the source, nil for a file
	File   string
	DB     int    // the only database to import, -1 for all
	Match  string // pattern for keys, "" for all
	// Replace says whether the import overwrites keys that the cluster already
	// has.
	Replace bool
	Target  Endpoint
	// State is the path of the state file. If Restart is set, the import begins
	// again even if that file exists.
	State   string
	Restart bool
	// The import calls Progress after each batch, Problem for each key or
	// function library that it does not import, and Note for other messages.
	Progress func(Counts)
	Problem  func(db int, key, reason string)
	Note     func(string)
}

// Result is the result of an import. If the import failed, it contains what was
// done before.
type Result struct {
	Counts
	Begun     bool // the state file belongs to this import
	Continued bool // the import continued an earlier import
	// Verified is the number of keys that both the source and the cluster have at
	// the end. Missing is the number of keys that the source has and the cluster
	// lacks.
	Verified, Missing int64
	// MissingKeys are some of the missing keys.
	MissingKeys []string
}

// Complete reports whether the import has skipped nothing, and has found no key
// missing and none with another value.
func (r Result) Complete() bool { return r.Existing == 0 && r.Skipped == 0 && r.Missing == 0 }

// shownMissing bounds Result.MissingKeys.
const shownMissing = 10

// job is an import in progress.
type job struct {
	cfg   Config
	to    *target
	state *state
	// reached contains the counts at the position in state. If this import is
	// interrupted, the next import reads the keys after that position again, so
	// the state file must not count them.
	reached Counts
	saved   time.Time
	res     Result
}

// Run imports the data of a source into a cluster. If it returns an error, the
// keys that were imported so far remain in the cluster, and the next Run with the
// same Config continues.
func Run(ctx context.Context, cfg Config) (Result, error) {
	j := &job{
		cfg: cfg, to: &target{link: &link{end: cfg.Target}, replace: cfg.Replace},
		state: &state{Version: stateVersion, Databases: make(map[int]position)},
	}
	defer j.to.link.close()
	err := j.run(ctx)
	j.res.Counts = j.state.Counts
	return j.res, err
}

func (j *job) run(ctx context.Context) error {
	if j.cfg.Server != nil {
		return j.fromServer(ctx)
	}
	return j.fromFile(ctx)
}

// begin fills in the state, and continues from the state file if there is one.
func (j *job) begin(source, identity string) error {
	s := j.state
	s.Source, s.Target, s.Identity = source, j.to.cluster, identity
	s.Options = fmt.Sprintf("database %d, match %q, replace %v", j.cfg.DB, j.cfg.Match, j.cfg.Replace)
	if j.cfg.Restart {
		return j.created(s.write(j.cfg.State))
	}
	old, err := readState(j.cfg.State)
	if err != nil {
		return err
	}
	same, err := s.continues(old, j.cfg.State)
	switch {
	case err != nil:
		return err
	case same:
		j.state, j.res.Continued = old, true
		old.Counts.Earlier = old.Counts.Keys
		if old.Databases == nil {
			old.Databases = make(map[int]position)
		}
		j.cfg.Note(fmt.Sprintf("continuing from %s, after %d keys", j.cfg.State, old.Counts.Keys))
	case old != nil:
		j.cfg.Note(fmt.Sprintf("the source has restarted or the file has changed since %s was written: "+
			"beginning again", j.cfg.State))
	}
	j.reached = j.state.Counts
	return j.created(j.state.write(j.cfg.State))
}

// created receives the result of writing the state file, and returns it. If err is
// nil, created records that the state file belongs to this import.
func (j *job) created(err error) error {
	j.res.Begun = err == nil
	return err
}

// advance records that the position in the state has changed. It writes the
// state file, but not more often than once per stateEvery.
func (j *job) advance() error {
	j.reached = j.state.Counts
	if time.Since(j.saved) < stateEvery {
		return nil
	}
	return j.save()
}

// save writes the state file.
func (j *job) save() error {
	j.saved = time.Now()
	s := *j.state
	s.Counts = j.reached
	return s.write(j.cfg.State)
}

// end ends the import with the result err. It saves the position if err is not
// nil, and removes the state file otherwise.
func (j *job) end(err error) error {
	if err != nil {
		return errors.Join(err, j.save())
	}
	return os.Remove(j.cfg.State)
}

// write imports items of one database, and counts them in the state.
func (j *job) write(ctx context.Context, items []item) error {
	if len(items) == 0 {
		return nil
	}
	counts := j.state.Counts
	var problems []func()
	err := j.to.write(ctx, items[0].db, items, func(it item, r result) {
		counts.Keys++
		counts.Bytes += int64(len(it.payload))
		problem := func(n *int64, reason string) {
			*n++
			problems = append(problems, func() { j.cfg.Problem(it.db, it.key, reason) })
		}
		switch {
		case r.skipped != "":
			problem(&counts.Skipped, r.skipped)
		case r.existing:
			problem(&counts.Existing, "the cluster has the key with another value or without its time to live: "+
				"--replace overwrites it")
		case r.expired:
			counts.Expired++
		default:
			counts.Imported++
		}
	})
	if err != nil {
		return err // the next import repeats the batch, so this import does not count it
	}
	j.state.Counts = counts
	for _, p := range problems {
		p()
	}
	return nil
}

// functions imports libraries of functions.
func (j *job) functions(ctx context.Context, codes []string) error {
	for _, code := range codes {
		r, err := j.to.function(ctx, code)
		if err != nil {
			return err
		}
		name := "function library " + libraryName(code)
		switch {
		case r.skipped != "":
			j.state.Counts.Skipped++
			j.cfg.Problem(0, name, r.skipped)
		case r.existing:
			j.state.Counts.Existing++
			j.cfg.Problem(0, name, "the cluster has the library with other code: --replace overwrites it")
		default:
			j.state.Counts.Functions++
		}
	}
	j.state.Functions = true
	return nil
}

// fromServer imports from a running server.
func (j *job) fromServer(ctx context.Context) error {
	s := &server{link: &link{end: *j.cfg.Server}, match: j.cfg.Match}
	defer s.link.close()
	sizes, err := s.open(ctx, j.cfg.DB)
	if err != nil {
		return err
	}
	if err := j.to.open(ctx); err != nil {
		return err
	}
	if s.cluster != "" && s.cluster == j.to.cluster {
		return fmt.Errorf("the source %s is a node of the cluster of --addr: name the server that has the data",
			s.link.addr())
	}
	if err := j.begin(s.link.end.Addrs[0], s.runID); err != nil {
		return err
	}
	return j.end(j.serverData(ctx, s, sizes))
}

func (j *job) serverData(ctx context.Context, s *server, sizes map[int]int64) error {
	if j.cfg.Match == "" {
		for _, n := range sizes {
			j.state.Counts.Total += n
		}
	}
	if !j.state.Functions {
		codes, err := s.functions(ctx)
		if err != nil {
			return err
		}
		if err := j.functions(ctx, codes); err != nil {
			return err
		}
		j.reached = j.state.Counts
	}
	dbs := sortedKeys(sizes)
	for _, db := range dbs {
		if err := j.database(ctx, s, db); err != nil {
			return err
		}
	}
	for _, db := range dbs {
		if err := j.verifyDatabase(ctx, s, db); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	return nil
}

func sortedKeys(m map[int]int64) []int {
	var list []int
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// database imports a database of a server.
func (j *job) database(ctx context.Context, s *server, db int) error {
	at := j.state.Databases[db]
	if at.Cursor == "" {
		at.Cursor = "0"
	}
	for !at.Done {
		next, keys, err := s.scan(ctx, db, at.Cursor)
		if err != nil {
			return err
		}
		batches, err := s.batches(ctx, db, keys)
		if err != nil {
			return err
		}
		for _, b := range batches {
			items, err := s.read(ctx, db, b)
			if err != nil {
				return err
			}
			j.state.Counts.Gone += int64(len(b) - len(items))
			if err := j.write(ctx, items); err != nil {
				return err
			}
			j.cfg.Progress(j.state.Counts)
		}
		at = position{Cursor: next, Done: next == "0"}
		j.state.Databases[db] = at
		if err := j.advance(); err != nil {
			return err
		}
	}
	return nil
}

// verifyDatabase checks that the cluster has the keys of a database of the
// source.
func (j *job) verifyDatabase(ctx context.Context, s *server, db int) error {
	for cursor := "0"; ; {
		next, keys, err := s.scan(ctx, db, cursor)
		if err != nil {
			return err
		}
		lost, err := j.to.missing(ctx, db, keys)
		if err != nil {
			return err
		}
		// If the source no longer has a key, the key has expired or was
		// deleted.
		still := &target{link: s.link}
		gone, err := still.missing(ctx, db, lost)
		if err != nil {
			return err
		}
		j.verified(len(keys)-len(lost), lost, gone)
		if cursor = next; cursor == "0" {
			return nil
		}
	}
}

// verified counts the keys that the cluster has and the keys that it lacks. It
// does not count the keys in gone as missing, because they have expired or the
// source no longer has them.
func (j *job) verified(present int, lost, gone []string) {
	j.res.Verified += int64(present)
	j.res.Missing += int64(len(lost) - len(gone))
	for _, k := range lost {
		if len(j.res.MissingKeys) < shownMissing && !slices.Contains(gone, k) {
			j.res.MissingKeys = append(j.res.MissingKeys, k)
		}
	}
}
