package resp

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
)

var configRows = []row{
	{cmd: fsm.Command{Name: "config", Arity: -2, Group: "server", Since: "2.0.0", Complexity: "Depends on subcommand.", Doc: "Commands about settings"}, sub: []row{
		{cmd: fsm.Command{Name: "get", Arity: -3, Since: "2.0.0", Complexity: "O(N) where N is the number of patterns", Syntax: "parameter [parameter ...]", Doc: "Settings whose names match patterns"}, words: "admin noscript loading stale", run: configGet},
		{cmd: fsm.Command{Name: "set", Arity: -4, Since: "2.0.0", Complexity: "O(N) where N is the number of settings", Syntax: "parameter value [parameter value ...]", Doc: "Change settings: notify-keyspace-events and requirepass of the whole cluster, acllog-max-len, acl-pubsub-default, latency-monitor-threshold, slowlog-log-slower-than and slowlog-max-len of this node until it is restarted; others only to the value that they have"}, words: "admin noscript loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", run: configSet},
		{cmd: fsm.Command{Name: "resetstat", Arity: 2, Since: "2.0.0", Complexity: "O(1)", Doc: "Make the statistics of INFO count from zero"}, words: "admin noscript loading stale", run: configResetstat},
		{cmd: fsm.Command{Name: "rewrite", Arity: 2, Since: "2.8.0", Complexity: "O(1)", Doc: "Refused: there is no configuration file"}, words: "admin noscript loading stale", run: configRewrite},
		helpRow("5.0.0"),
	}},
}

// settings are what CONFIG GET prints. What clients ask for is here, with the
// value by which this server behaves; a parameter of Redis that has no
// counterpart is missing. A few can be changed: see configSet. Setting another one
// to the value that it has is accepted, because programs do that as they start,
// and everything else is refused, because it would not happen.
func (s *Server) settings() map[string]string {
	l := s.cfg.Limits
	bind, port := "", strconv.Itoa(s.port)
	if host, _, err := net.SplitHostPort(s.cfg.Addr); err == nil {
		bind = host
	}
	all := map[string]string{
		"acl-pubsub-default":         channelDefaults[s.openChannels.Load()],
		"aclfile":                    "",
		"appendfsync":                "always",
		"appendonly":                 "yes",
		"bind":                       bind,
		"client-output-buffer-limit": fmt.Sprintf("normal 0 0 0 slave 0 0 0 pubsub %d %d %d", l.PushHard, l.PushSoft, int(l.PushSoftTime.Seconds())),
		"cluster-enabled":            yesNo(s.cfg.Mode == Clustered),
		"daemonize":                  "no",
		"databases":                  strconv.Itoa(fsm.Databases),
		"dir":                        s.cfg.DataDir,
		"lazyfree-lazy-expire":       "no",
		"lazyfree-lazy-user-del":     "no",
		"maxclients":                 strconv.Itoa(l.MaxClients),
		"maxmemory":                  "0",
		"maxmemory-policy":           "noeviction",
		"notify-keyspace-events":     "",
		"port":                       port,
		"proto-max-bulk-len":         strconv.Itoa(l.MaxBulk),
		"protected-mode":             "no",
		"replica-read-only":          "yes",
		"replica-serve-stale-data":   "yes",
		"requirepass":                s.requirePass(),
		"save":                       "",
		"slave-read-only":            "yes",
		"slave-serve-stale-data":     "yes",
		"tracking-table-max-keys":    strconv.Itoa(trackingTableMaxKeys),
		"tcp-keepalive":              strconv.Itoa(int(guardKeepAlive.Seconds())),
		"timeout":                    "0",
		"tls-port":                   "0",
		"unixsocket":                 "",
	}
	for name, b := range boundedSettings {
		all[name] = strconv.FormatInt(b.get(s), 10)
	}
	return all
}

func configGet(c *conn, args [][]byte) fsm.Reply {
	all := c.srv.settings()
	if slices.ContainsFunc(args[2:], func(p []byte) bool { return glob(string(p), fsm.SettingNotify) }) {
		value, err := c.replicated(fsm.SettingNotify)
		if err != nil {
			return fsm.Error(errorText(err))
		}
		all[fsm.SettingNotify] = value
	}
	var out []fsm.Reply
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(args[2:], func(p []byte) bool { return glob(string(p), name) }) {
			out = append(out, fsm.Bulk(name), fsm.Bulk(all[name]))
		}
	}
	return fsm.Map(out)
}

// replicated reads a setting of the whole cluster: linearizably, or as this node
// knows it while there is no leader.
func (c *conn) replicated(name string) (string, error) {
	get := func(local bool) ([]byte, error) {
		row := c.srv.table.Find([]byte(fsm.GetSettingCommand))
		c.group.Command(row, c.db, [][]byte{[]byte(row.Name), []byte(name)})
		defer c.reset()
		return c.do(local)
	}
	out, err := get(false)
	if err != nil {
		if out, err = get(true); err != nil {
			return "", err
		}
	}
	_, value, ok := bytes.Cut(out, []byte("\r\n"))
	if !ok || out[0] != '$' {
		return "", fmt.Errorf("read setting %s: unexpected answer %q", name, out)
	}
	return string(bytes.TrimSuffix(value, []byte("\r\n"))), nil
}

// replicate changes a setting of the whole cluster. refusal is why the cluster
// does not take the value.
func (c *conn) replicate(name, value string) (refusal string, err error) {
	row := c.srv.table.Find([]byte(fsm.SetSettingCommand))
	c.group.Command(row, c.db, [][]byte{[]byte(row.Name), []byte(name), []byte(value)})
	defer c.reset()
	out, err := c.do(false)
	switch {
	case err != nil:
		return "", err
	case out[0] == '-':
		return string(bytes.TrimSpace(out[1:])), nil
	}
	return "", nil
}

// configSet changes all parameters or none.
func configSet(c *conn, args [][]byte) fsm.Reply {
	if len(args)%2 != 0 {
		return fsm.Error(msgSyntax)
	}
	failed := func(name, why string) fsm.Reply {
		return fsm.Error("ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + why)
	}
	all := c.srv.settings()
	changes := make(map[string]string)
	for i := 2; i < len(args); i += 2 {
		name, value := strings.ToLower(string(args[i])), string(args[i+1])
		current, known := all[name]
		if !known {
			return fsm.Error("ERR Unknown option or number of arguments for CONFIG SET - '" + string(args[i]) + "'")
		}
		if _, twice := changes[name]; twice {
			return failed(string(args[i]), "duplicate parameter")
		}
		number, isNumber := boundedSettings[name]
		switch {
		case name == "requirepass", name == fsm.SettingNotify:
		case isNumber:
			if _, wrong := number.check(value); wrong != "" {
				return failed(string(args[i]), wrong)
			}
		case name == "acl-pubsub-default":
			if value = strings.ToLower(value); value != channelDefaults[false] && value != channelDefaults[true] {
				return failed(string(args[i]), "argument(s) must be one of the following: allchannels, resetchannels")
			}
		default:
			if !strings.EqualFold(value, current) {
				return failed(string(args[i]), "it is fixed to '"+current+"' while the node runs")
			}
		}
		changes[name] = value
	}
	// First what can fail.
	if value, ok := changes[fsm.SettingNotify]; ok {
		refusal, err := c.replicate(fsm.SettingNotify, value)
		if err != nil {
			return fsm.Error(errorText(err))
		}
		if refusal != "" {
			return failed(fsm.SettingNotify, strings.TrimPrefix(refusal, "ERR "))
		}
	}
	var incomplete error // of what was executed all the same
	if pass, ok := changes["requirepass"]; ok {
		incomplete = c.setRequirePass(pass)
		if cluster.OutcomeOf(incomplete) != cluster.OutcomeExecuted {
			return fsm.Error(errorText(incomplete))
		}
	}
	for name, b := range boundedSettings {
		if value, ok := changes[name]; ok {
			n, _ := b.check(value) // as above
			b.set(c.srv, n)
		}
	}
	if value, ok := changes["acl-pubsub-default"]; ok {
		c.srv.openChannels.Store(value == channelDefaults[true])
	}
	if incomplete != nil {
		return fsm.Error(errorText(incomplete))
	}
	return fsm.OK
}

// maxACLLog bounds acllog-max-len: an entry may hold a key.
const maxACLLog = 10000

// channelDefaults are the values of acl-pubsub-default.
var channelDefaults = map[bool]string{true: "allchannels", false: "resetchannels"}

// setRequirePass makes pass the only password of the default user, on all nodes;
// connections that have authenticated stay so.
func (c *conn) setRequirePass(pass string) error {
	err := c.changeUser(acl.DefaultUser, func(u *acl.User) (*acl.User, error) {
		u = u.Clone()
		u.SetPassword(pass)
		return u, nil
	})
	if cluster.OutcomeOf(err) == cluster.OutcomeExecuted {
		c.srv.mu.Lock()
		c.srv.rpass = pass
		c.srv.mu.Unlock()
	}
	return err
}

// requirePass is what this node was told of the default user's password, as long
// as it is true: of a password that was set elsewhere, only the hash is known.
func (s *Server) requirePass() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if def := s.users.Load().def; s.rpass != "" && !def.NoPass() && def.HasPassword(s.rpass) {
		return s.rpass
	}
	return ""
}

func configResetstat(c *conn, args [][]byte) fsm.Reply {
	c.srv.metrics.reset()
	return fsm.OK
}

func configRewrite(c *conn, args [][]byte) fsm.Reply {
	return fsm.Error("ERR The server is running without a config file")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
