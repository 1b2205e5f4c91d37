package serve

import (
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/resp"
)

// reloader reloads certificates, secrets and the log level at each SIGHUP. Many
// programs take SIGHUP as a request to reload.
type reloader struct {
	o      *options
	stores tlsStores
	logs   *nodeLog
	audit  *auditFile // nil if the audit log has no file
	token  httpToken

	clients atomic.Pointer[resp.Server] // nil until the client port is open

	// Only the goroutine of watch uses these after the start. They are what the
	// files contained when they were last read.
	password, level string
}

func newReloader(o *options, p prepared, logs *nodeLog, audit *auditFile) *reloader {
	r := &reloader{
		o: o, stores: p.stores, logs: logs, audit: audit, password: o.access.requirePass, level: o.logging.level,
	}
	r.token.set(p.token)
	return r
}

// watch reloads at each SIGHUP until stop is called.
func (r *reloader) watch() (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-hangups:
				r.reload()
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

// reload reads everything again. If a part is wrong, its previous values stay in
// effect.
func (r *reloader) reload() {
	log := r.logs.main
	var reloaded []string
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"certificates", r.stores.reload},
		{"level of the log", r.readLevel},
		{"password", r.readPassword},
		{"HTTP token", r.readToken},
		{"audit log", r.audit.reopen},
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

// readLevel reads log-level from the configuration file.
func (r *reloader) readLevel() error {
	if r.o.configFile == "" {
		return nil
	}
	now, err := r.o.reread()
	if err != nil {
		return err
	}
	l, err := logLevel(now.logging.level)
	if err != nil {
		return err
	}
	if now.logging.level != r.level {
		r.level = now.logging.level
		r.logs.setLevel(l)
	}
	return nil
}

// readPassword makes the content of --requirepass-file the password of the
// cluster, if it has changed since it was last read. A file that has not changed
// must not undo CONFIG SET requirepass.
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
	r.logs.audit.Info("password of the default user changed", "node", r.o.nodeID, "by", "SIGHUP")
	return nil
}

func (r *reloader) readToken() error {
	token, err := r.o.web.readToken()
	if err == nil {
		r.token.set(token)
	}
	return err
}

// rereadOptions reads the settings of serve again: those that the command line or
// the environment set, which are the same as at the start, and those of the
// configuration file.
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
