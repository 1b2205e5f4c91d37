package serve

import (
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/certs"
	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/resp"
)

// checkExpiryEvery is the time between two checks for certificates that expire
// soon or have expired.
const checkExpiryEvery = time.Hour

// reloader reloads certificates, secrets and the settings of the log at each
// SIGHUP, as many programs do, and opens the file of the audit log again. It also
// logs certificates that expire soon.
type reloader struct {
	o         *options
	stores    tlsStores
	logs      *nodeLog
	audit     hclog.Logger // the audit log
	auditFile *auditFile   // nil if the audit log has no file
	token     httpToken

	node    atomic.Pointer[cluster.Node] // nil until the node is open
	clients atomic.Pointer[resp.Server]  // nil until the client port is open

	// These are the values that the node last read from the files. After the start,
	// only the goroutine of watch uses them and expiry.
	password, level, format string
	secrets                 secrets
	expiry                  *certs.ExpiryLog
}

// newReloader returns a reloader. audit is nil if there is no audit log, and file is nil
// if the audit log has no file.
func newReloader(o *options, p prepared, logs *nodeLog, audit hclog.Logger, file *auditFile) *reloader {
	if audit == nil {
		audit = hclog.NewNullLogger()
	}
	r := &reloader{
		o: o, stores: p.stores, logs: logs, audit: audit, auditFile: file,
		password: o.access.requirePass, level: o.logging.level, format: o.logging.format,
		secrets: secrets{p.cluster.Secret, p.cluster.PreviousSecret},
		expiry:  certs.NewExpiryLog(logs.main),
	}
	r.token.set(p.token)
	return r
}

// watch reloads at each SIGHUP, and checks the certificates every hour, until stop is
// called.
func (r *reloader) watch() (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		hourly := time.NewTicker(checkExpiryEvery)
		defer hourly.Stop()
		for {
			r.expiry.Check(time.Now(), r.stores.all()...)
			select {
			case <-hourly.C:
			case <-hangups:
				r.reload()
				r.expiry.Forget()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
		<-ended
	}
}

// reload reads the certificates, the secrets and the settings of the log again,
// and reopens the file of the audit log. If a file is wrong, its previous
// values stay in effect.
func (r *reloader) reload() {
	log := r.logs.main
	var reloaded []string
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"certificates", r.stores.reload},
		{"log settings", r.readLogging},
		{"password", r.readPassword},
		{"cluster secret", r.readClusterSecret},
		{"HTTP token", r.readToken},
		{"audit log", r.auditFile.reopen},
	} {
		if err := part.read(); err != nil {
			log.Error("SIGHUP: the node keeps its previous settings", "part", part.name, "error", err)
		} else {
			reloaded = append(reloaded, part.name)
		}
	}
	log.Info("SIGHUP: reloaded; other flags and files are read when the node starts", "parts",
		strings.Join(reloaded, ", "))
}

// readLogging reads log-level and log-format from the configuration file.
func (r *reloader) readLogging() error {
	if r.o.configFile == "" {
		return nil
	}
	now, err := r.o.reread()
	if err != nil {
		return err
	}
	level, format := now.logging.level, now.logging.format
	l, err := logLevel(level)
	if err != nil {
		return err
	}
	if err := checkFormat(format); err != nil {
		return err
	}
	if level != r.level {
		r.logs.setLevel(l)
	}
	if format != r.format {
		r.logs.setFormat(format)
	}
	r.level, r.format = level, format
	return nil
}

// readClusterSecret reads the file of --cluster-secret-file.
func (r *reloader) readClusterSecret() error {
	read, err := (&secretOptions{file: r.o.secret.file}).read()
	if err != nil || read.equal(r.secrets) {
		return err
	}
	node := r.node.Load()
	if node == nil {
		return errors.New("the node is starting: send SIGHUP again later")
	}
	if err := node.SetSecrets(read.current, read.previous); err != nil {
		return err
	}
	r.secrets = read
	r.logs.main.Info("cluster secret changed", "previous_accepted", read.previous != nil)
	r.audit.Info("cluster secret changed", "node", r.o.nodeID, "by", "SIGHUP")
	return nil
}

// readPassword makes the content of --requirepass-file the password of the default
// user, if the content has changed since it was last read. A file that has not
// changed must not undo CONFIG SET requirepass.
func (r *reloader) readPassword() error {
	if r.o.access.requirePassFile == "" {
		return nil
	}
	password, err := flags.ReadSecret("requirepass-file", r.o.access.requirePassFile)
	if err != nil || password == r.password {
		return err
	}
	clients := r.clients.Load()
	if clients == nil {
		return errors.New("the node is starting: send SIGHUP again later")
	}
	if err := clients.SetDefaultPassword(password); err != nil {
		return err
	}
	r.password = password
	r.audit.Info("password of the default user changed", "node", r.o.nodeID, "by", "SIGHUP")
	return nil
}

func (r *reloader) readToken() error {
	token, err := r.o.web.readToken()
	if err == nil {
		r.token.set(token)
	}
	return err
}

// rereadOptions reads the settings of serve again. The command line and the
// environment have not changed since the start, but the configuration file may
// have.
func rereadOptions(old *pflag.FlagSet) (options, error) {
	o := newOptions()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.flags(f)
	if err := f.Parse(serveArgs(os.Args)); err != nil {
		return *o, err
	}
	if err := flags.FromEnv(f); err != nil {
		return *o, err
	}
	return *o, flags.FromFile(f, old.Lookup(flags.ConfigName).Value.String())
}

// serveArgs returns the arguments after the name of the command.
func serveArgs(args []string) []string {
	for i, a := range args {
		if a == "serve" {
			return args[i+1:]
		}
	}
	return nil
}
