package locking

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/client"
	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/lock"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command { return []*cobra.Command{lockCommand(), locksCommand()} }

// endpoint holds the flags that say which cluster and which database to use.
type endpoint struct {
	addrs []string
	db    int
	login client.LoginFlags
}

func (e *endpoint) define(f *pflag.FlagSet) {
	f.StringSliceVar(&e.addrs, "addr", []string{"127.0.0.1:6379"},
		"client addresses of nodes; if one does not answer, the next one is asked")
	f.IntVar(&e.db, "db", 0, "number of the database")
	e.login.Define(f)
	f.Lookup("user").Usage = "user at the client port, if not the default user; the user needs the command LOCK"
}

// open returns a client of the nodes. It does not connect yet.
func (e *endpoint) open() (*lock.Nodes, error) {
	if len(e.addrs) == 0 {
		return nil, errors.New("--addr is empty: name at least one node of the cluster")
	}
	for _, addr := range e.addrs {
		if err := flags.CheckAddr(addr); err != nil {
			return nil, fmt.Errorf("--addr %s: %w", addr, err)
		}
	}
	login, err := e.login.Login()
	if err != nil {
		return nil, err
	}
	logging.Disable() // the errors of the commands already say what go-redis would log
	return lock.NewNodes(e.addrs, redis.Options{
		Username: login.User, Password: login.Password, TLSConfig: login.TLS, DB: e.db,
		DialTimeout: dialTimeout, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
	})
}
