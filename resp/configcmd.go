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
		{cmd: fsm.Command{Name: "set", Arity: -4, Since: "2.0.0", Complexity: "O(N) where N is the number of settings", Syntax: "parameter value [parameter value ...]", Doc: "Change settings: notify-keyspace-events and requirepass of the whole cluster, acllog-max-len, acl-pubsub-default, latency-monitor-threshold, slowlog-log-slower-than and slowlog-max-len of this node until it is restarted; other parameters of Redis are kept without effect or refused: see docs/config.md"}, words: "admin noscript loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", run: configSet},
		{cmd: fsm.Command{Name: "resetstat", Arity: 2, Since: "2.0.0", Complexity: "O(1)", Doc: "Make the statistics of INFO count from zero"}, words: "admin noscript loading stale", run: configResetstat},
		{cmd: fsm.Command{Name: "rewrite", Arity: 2, Since: "2.8.0", Complexity: "O(1)", Doc: "Refused: there is no configuration file"}, words: "admin noscript loading stale", run: configRewrite},
		helpRow("5.0.0"),
	}},
}

// settings are what CONFIG GET prints: all parameters of Redis 7.0.15, with the value
// by which this server behaves, if it has one. Those that the cluster keeps are as
// they are at first: see replicated.
func (s *Server) settings() map[string]string {
	l := s.cfg.Limits
	bind, port := "", strconv.Itoa(s.port)
	if host, _, err := net.SplitHostPort(s.cfg.Addr); err == nil {
		bind = host
	}
	all := make(map[string]string)
	for name, p := range parameterNames {
		all[name] = p.start
	}
	maps.Copy(all, map[string]string{
		"acl-pubsub-default":         channelDefaults[s.openChannels.Load()],
		"appendfsync":                "always",
		"appendonly":                 "yes",
		"bind":                       bind,
		"client-output-buffer-limit": fmt.Sprintf("normal 0 0 0 slave 0 0 0 pubsub %d %d %d", l.PushHard, l.PushSoft, int(l.PushSoftTime.Seconds())),
		"client-query-buffer-limit":  strconv.Itoa(l.MaxCommand),
		"cluster-enabled":            yesNo(s.cfg.Mode == Clustered),
		"databases":                  strconv.Itoa(fsm.Databases),
		"dir":                        s.cfg.DataDir,
		"maxclients":                 strconv.Itoa(l.MaxClients),
		"notify-keyspace-events":     "",
		"port":                       port,
		"proto-max-bulk-len":         strconv.Itoa(l.MaxBulk),
		"protected-mode":             "no",
		"requirepass":                s.requirePass(),
		"tracking-table-max-keys":    strconv.Itoa(trackingTableMaxKeys),
		"tcp-keepalive":              strconv.Itoa(int(guardKeepAlive.Seconds())),
	})
	for name, b := range boundedSettings {
		all[name] = strconv.FormatInt(b.get(s), 10)
	}
	return all
}

func configGet(c *conn, args [][]byte) fsm.Reply {
	all := c.srv.settings()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.ContainsFunc(args[2:], func(p []byte) bool { return glob(string(p), name) }) {
			names = append(names, name)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool { return name == fsm.SettingNotify || isReplicated(name) }) {
		kept, err := c.replicated()
		if err != nil {
			return fsm.Error(errorText(err))
		}
		for name, value := range kept {
			all[name] = value
			if p := parameterNames[name]; p != nil && p.alias != "" {
				all[p.alias] = value
			}
		}
	}
	var out []fsm.Reply
	for _, name := range names {
		out = append(out, fsm.Bulk(name), fsm.Bulk(all[name]))
	}
	return fsm.Map(out)
}

// replicated reads the settings of the whole cluster that were ever changed:
// linearizably, or as this node knows them while there is no leader.
func (c *conn) replicated() (map[string]string, error) {
	words := [][]byte{[]byte(fsm.GetSettingsCommand)}
	if c.srv.cluster.FeatureVersion(fsm.FeatureMend) < fsm.FeatureMend {
		words = [][]byte{[]byte(fsm.GetSettingCommand), []byte(fsm.SettingNotify)}
	}
	get := func(local bool) ([]byte, error) {
		c.group.Command(c.srv.table.Find(words[0]), c.db, words)
		defer c.reset()
		return c.do(local)
	}
	out, err := get(false)
	if err != nil {
		if out, err = get(true); err != nil {
			return nil, err
		}
	}
	if len(words) > 1 {
		value, rest, ok := cutBulk(out)
		if !ok || len(rest) > 0 {
			return nil, fmt.Errorf("read %s: unexpected answer %q", words[1], out)
		}
		return map[string]string{fsm.SettingNotify: value}, nil
	}
	head, _, n := replyHead(out)
	rest, all := out[head:], make(map[string]string)
	for ; n > 1; n -= 2 {
		var name, value string
		var ok, ok2 bool
		name, rest, ok = cutBulk(rest)
		value, rest, ok2 = cutBulk(rest)
		if !ok || !ok2 {
			break
		}
		all[name] = value
	}
	if n != 0 || head == 0 {
		return nil, fmt.Errorf("read settings: unexpected answer %q", out)
	}
	return all, nil
}

// cutBulk takes a bulk string from the beginning of replies.
func cutBulk(b []byte) (value string, rest []byte, ok bool) {
	n := replyLen(b)
	head, payload, _ := replyHead(b)
	if n == 0 || b[0] != '$' || payload < 2 {
		return "", b, false
	}
	return string(b[head : head+payload-2]), b[n:], true
}

// replicate changes settings of the whole cluster, given as names and values: all or
// none. refusal is why the cluster does not take them. Programs from before
// fsm.FeatureMend know notify-keyspace-events only.
func (c *conn) replicate(pairs [][]byte) (refusal string, err error) {
	command := fsm.SetSettingsCommand
	if len(pairs) == 2 && string(pairs[0]) == fsm.SettingNotify {
		command = fsm.SetSettingCommand
	}
	c.group.Command(c.srv.table.Find([]byte(command)), c.db, slices.Concat([][]byte{[]byte(command)}, pairs))
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
	for i := 2; i < len(args); i += 2 { // first what is wrong with the names, as in Redis
		name := settingName(args[i])
		if _, known := all[name]; !known {
			return fsm.Error("ERR Unknown option or number of arguments for CONFIG SET - '" + string(args[i]) + "'")
		}
		if p := parameterNames[name]; p != nil && p.class >= immutable {
			return failed(string(args[i]), map[parameterClass]string{immutable: "can't set immutable config", protected: "can't set protected config"}[p.class])
		}
		if _, twice := changes[name]; twice {
			return failed(string(args[i]), "duplicate parameter")
		}
		changes[name] = string(args[i+1])
	}
	var pairs [][]byte // that the cluster keeps
	for i := 2; i < len(args); i += 2 {
		name := settingName(args[i])
		value, wrong := checkSetting(name, changes[name], all[name])
		if wrong != "" {
			return failed(string(args[i]), wrong)
		}
		if changes[name] = value; name == fsm.SettingNotify || isReplicated(name) {
			pairs = append(pairs, []byte(name), []byte(value))
		}
	}
	if text := withoutEffect(changes); text != "" {
		c.srv.log.Info("settings without effect", "client", c.id, "settings", text)
	}
	// First what can fail.
	if len(pairs) > 0 {
		refusal, err := c.replicate(pairs)
		if err != nil {
			return fsm.Error(errorText(err))
		}
		if refusal != "" { // the only one that the cluster itself checks
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

// settingName is the name under which a parameter is kept.
func settingName(word []byte) string {
	name := strings.ToLower(string(word))
	if p := parameterNames[name]; p != nil {
		return p.name
	}
	return name
}

// withoutEffect lists what is kept and has no effect.
func withoutEffect(changes map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if isReplicated(name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// maxTuning bounds a value that the cluster keeps: see fsm.SetSettingsCommand.
const maxTuning = 512

// checkSetting reads a value of a setting that can be changed, or says why it is
// refused.
func checkSetting(name, value, current string) (canonical, wrong string) {
	number, isNumber := boundedSettings[name]
	switch {
	case isNumber:
		_, wrong = number.check(value)
		return value, wrong
	case name == "acl-pubsub-default":
		return enumKind(channelDefaults[true], channelDefaults[false])(value)
	case parameterNames[name] == nil:
		return value, ""
	case len(value) > maxTuning:
		return "", "the value is longer than 512 bytes"
	}
	return parameterNames[name].check(value, current)
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
