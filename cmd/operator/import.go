package operator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/cmd/terminal"
	"github.com/holdfast-kv/holdfast/migrate"
)

// shownProblems bounds the list of the keys that were not imported, if the list
// goes to the terminal. With --list-file, the list has no bound.
const shownProblems = 1000

type importOptions struct {
	addrs                  []string
	login                  client.LoginFlags
	passwordFile           string
	ca, cert, key          string // paths, for the source
	match, state, listFile string
	replace, restart       bool
}

func importCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import redis://[USER:PASSWORD@]HOST[:PORT][/DB]|FILE.rdb",
		Short: "Copy the data of a Redis server or of an RDB file into a cluster",
		Long: `Copy the data of a running Redis server, or of an RDB file, into a cluster: all
types of values, times to live, databases, and functions.

From a server, import reads every key with SCAN, and its value and time to live
with DUMP and PTTL in one transaction. rediss:// connects with TLS. Without a
database in the address, all databases are copied. Keys that clients change during
the import may be copied with their old or their new value, and keys that they
create may be missing. To move without such differences, stop the clients that
write, and run the import again with --replace.

import checks an RDB file completely, with its checksum, before it imports anything.

A key that the cluster already has keeps its value, unless --replace is set. If the
value is the same, the key counts as imported; otherwise import lists it. It also
lists the keys that the cluster cannot store: values of modules, values that a
Redis newer than 7.0 writes in a new format, and strings and elements that are larger
than --max-bulk-bytes of the cluster. If it lists any key, or finds at the end that a
key is missing, it exits with code 1.

import keeps its position in a state file. If it is interrupted, run the same
command again to continue. Several addresses in --addr let it continue by itself
when a node of the cluster fails. docs/migrate.md describes all steps.`,
		Example: `  holdfast import redis://10.0.0.9:6379 --addr 10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379
  holdfast import rediss://app@10.0.0.9/2 --source-password-file pw --match 'lock:*'
  holdfast import /var/lib/redis/dump.rdb --addr 10.0.0.1:6379`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.addrs, "addr", []string{"127.0.0.1:6379"}, "client addresses of nodes of the cluster")
	f.BoolVar(&o.replace, "replace", false, "overwrite keys and functions that the cluster has with another value")
	f.StringVar(&o.match, "match", "", "import only the keys that match this pattern, as in SCAN (from a server only)")
	f.StringVar(&o.state, "state", "",
		"file in which the import keeps its position (default: holdfast-import-SOURCE.state in this directory)")
	f.BoolVar(&o.restart, "restart", false, "begin again, even if the state file of an interrupted import exists")
	f.StringVar(&o.listFile, "list-file", "",
		"file to which the keys that were not imported are appended (default: standard error, at most 1000 of them)")
	f.StringVar(&o.passwordFile, "source-password-file", "", "file with the password of the Redis server")
	f.StringVar(&o.ca, "source-tls-ca-cert-file", "",
		"PEM file with the authorities that sign the certificate of the Redis server (default: those of this machine)")
	f.StringVar(&o.cert, "source-tls-cert-file", "", "PEM file with a certificate for the Redis server")
	f.StringVar(&o.key, "source-tls-key-file", "", "PEM file with the key of --source-tls-cert-file")
	o.login.Define(f)
	return cmd
}

func (o *importOptions) run(cmd *cobra.Command, source string) (err error) {
	cfg := migrate.Config{
		DB: -1, Match: o.match, Replace: o.replace, State: o.state, Restart: o.restart,
		Note: func(text string) { cmd.PrintErrln(text) },
	}
	name := filepath.Base(source)
	if scheme, _, ok := strings.Cut(source, "://"); ok {
		end, db, err := o.server(source)
		if err != nil {
			return fmt.Errorf("source %s://…: %w", scheme, err)
		}
		cfg.Server, cfg.DB, name = end, db, strings.NewReplacer(":", "-", "[", "", "]", "").Replace(end.Addrs[0])
	} else {
		cfg.File = source
		if _, err := os.Stat(source); err != nil {
			return fmt.Errorf("%w (a running server is named redis://HOST:PORT)", err)
		}
	}
	if cfg.State == "" {
		cfg.State = "holdfast-import-" + name + ".state"
	}
	login, err := o.login.Login()
	if err != nil {
		return err
	}
	cfg.Target = migrate.Endpoint{
		Name: "target", Addrs: o.addrs, User: login.User, Password: login.Password, TLS: login.TLS,
	}
	if len(o.addrs) == 0 {
		return errors.New("--addr is empty: name at least one node of the cluster")
	}
	problems, err := o.problems(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, problems.close()) }()
	cfg.Problem = problems.add
	progress := terminal.NewCount(cmd.ErrOrStderr(), "import", "keys")
	cfg.Progress = func(c migrate.Counts) {
		progress.SetTotal(max(c.Total, c.Keys))
		if c.Total == 0 {
			progress.SetTotal(0)
		}
		progress.SetEarlier(c.Earlier)
		progress.At(c.Keys)
	}
	res, err := migrate.Run(cmd.Context(), cfg)
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		return errors.Join(err, interrupted(cfg, res))
	}
	progress.Done(res.Keys)
	return report(cmd.OutOrStdout(), res)
}

// interrupted returns an error that says how to continue an import that failed, or
// nil if the import had not begun.
func interrupted(cfg migrate.Config, res migrate.Result) error {
	if !res.Begun {
		return nil
	}
	return fmt.Errorf("%d keys were imported and remain in the cluster: "+
		"run the same command again to continue (state file %s)", res.Imported, cfg.State)
}

// server parses the address of a Redis server. Its errors do not contain the
// password.
func (o *importOptions) server(text string) (end *migrate.Endpoint, db int, err error) {
	u, err := url.Parse(text)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, 0, fmt.Errorf("%w (write special characters of the password as %%XX, "+
			"or use --source-password-file)", err)
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, 0, errors.New("the address must begin with redis:// or rediss://")
	}
	if u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, 0, errors.New("write the address as redis://[USER:PASSWORD@]HOST[:PORT][/DB]")
	}
	db = -1
	if path := strings.Trim(u.Path, "/"); path != "" {
		if db, err = strconv.Atoi(path); err != nil || db < 0 {
			return nil, 0, fmt.Errorf("%q is not the number of a database", path)
		}
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	end = &migrate.Endpoint{Name: "source", Addrs: []string{net.JoinHostPort(u.Hostname(), port)}}
	end.User = u.User.Username()
	end.Password, _ = u.User.Password()
	if o.passwordFile != "" {
		if end.Password != "" {
			return nil, 0, errors.New("the address has a password, and --source-password-file is set: use one of them")
		}
		if end.Password, err = flags.ReadSecret("source-password-file", o.passwordFile); err != nil {
			return nil, 0, err
		}
	}
	if end.User != "" && end.Password == "" {
		return nil, 0, errors.New("the address has a user without a password: set --source-password-file")
	}
	end.TLS, err = o.encryption(u.Scheme == "rediss")
	return end, db, err
}

// encryption returns the configuration of TLS for the source, nil without TLS.
func (o *importOptions) encryption(wanted bool) (*tls.Config, error) {
	if !wanted {
		if o.ca != "" || o.cert != "" || o.key != "" {
			return nil, errors.New("the flags --source-tls-… need an address that begins with rediss://")
		}
		return nil, nil
	}
	if (o.cert == "") != (o.key == "") {
		return nil, errors.New("--source-tls-cert-file and --source-tls-key-file must be set together")
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.cert != "" {
		cert, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("--source-tls-cert-file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	if o.ca != "" {
		pool, err := certs.Authorities(o.ca)
		if err != nil {
			return nil, fmt.Errorf("--source-tls-ca-cert-file: %w", err)
		}
		cfg.RootCAs = pool
	}
	return cfg, nil
}

// problemList lists keys that were not imported.
type problemList struct {
	out   io.Writer
	file  *os.File // nil for the terminal
	count int
	err   error // first error of a write to out
}

func (o *importOptions) problems(errOut io.Writer) (*problemList, error) {
	if o.listFile == "" {
		return &problemList{out: errOut}, nil
	}
	f, err := os.OpenFile(o.listFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--list-file: %w", err)
	}
	return &problemList{out: f, file: f}, nil
}

func (p *problemList) add(db int, key, reason string) {
	p.count++
	if p.file == nil && p.count > shownProblems {
		return
	}
	_, err := fmt.Fprintf(p.out, "not imported: database %d, %q: %s\n", db, key, reason)
	if p.file == nil && p.count == shownProblems {
		fmt.Fprintln(p.out, "more such keys are not listed: --list-file names a file for all of them")
	}
	if p.err == nil {
		p.err = err
	}
}

func (p *problemList) close() error {
	if p.file == nil {
		return nil // a failed write to the terminal is not a failure of the import
	}
	return errors.Join(p.err, p.file.Close())
}

// report prints the result of an import. It returns an error if the import is
// incomplete: see migrate.Result.Complete.
func report(out io.Writer, r migrate.Result) error {
	_, err := fmt.Fprintf(out, "imported:   %d of %d keys, %d function libraries\n", r.Imported, r.Keys, r.Functions)
	line := func(n int64, format string) {
		if n > 0 && err == nil {
			_, err = fmt.Fprintf(out, format+"\n", n)
		}
	}
	line(r.Expired, "expired:    %d keys whose time to live had passed")
	line(r.Gone, "deleted:    %d keys that were deleted or expired in the source during the import")
	line(r.Existing, "different:  %d keys or libraries that the cluster has with another value: "+
		"--replace overwrites them")
	line(r.Skipped, "refused:    %d keys or libraries that the cluster cannot store")
	if err == nil {
		_, err = fmt.Fprintf(out, "verified:   the cluster has %d of the %d keys that the source has now\n", r.Verified,
			r.Verified+r.Missing)
	}
	if err != nil || r.Complete() {
		return err
	}
	if unexplained := r.Missing > r.Skipped; unexplained {
		_, err = fmt.Fprintf(out, "missing:    %q\n", r.MissingKeys)
	}
	return errors.Join(err, errors.New("the import is incomplete: see the keys above. To copy keys that clients "+
		"created or changed meanwhile, run the import again with --replace"))
}
