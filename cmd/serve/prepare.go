package serve

import (
	"cmp"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm/command"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/slots"
	"github.com/holdfast-kv/holdfast/script"
)

// prepared contains the values that serve needs to open a node. They come from the
// flags and from the files that the flags name.
type prepared struct {
	cluster cluster.Config
	users   []*acl.User // users of --acl-file
	stores  tlsStores
	token   string // token of the HTTP port, "" for none
}

// prepare checks the flags and reads the files that they name. It opens no port
// and no data directory. If create is false, --cluster-secret-create has no
// effect: prepare does not create the file, and continues without the secret.
func (o *options) prepare(log, scriptLog hclog.Logger, create bool, fatal func(error)) (p prepared, err error) {
	if err := o.validate(); err != nil {
		return p, err
	}
	if err := o.readPassword(); err != nil {
		return p, err
	}
	if p.token, err = o.web.readToken(); err != nil {
		return p, err
	}
	if err := o.web.checkPprof(o.httpAddr); err != nil {
		return p, err
	}
	if err := checkDescriptors(o.limits.MaxClients, o.web.maxConns); err != nil {
		return p, err
	}
	if p.stores, err = o.tls.open(log); err != nil {
		return p, err
	}
	if p.cluster, err = o.config(log, scriptLog, fatal); err != nil {
		return p, err
	}
	if err := o.checkAdvertisedPeer(); err != nil {
		return p, err
	}
	if p.users, err = o.users(); err != nil {
		return p, err
	}
	if err := p.cluster.Validate(); err != nil {
		return p, err
	}
	if err := o.checkProtected(p.users); err != nil {
		return p, err
	}
	if o.secret.create && !create {
		return p, nil
	}
	secrets, err := o.secret.read()
	if err != nil {
		return p, err
	}
	p.cluster.Secret, p.cluster.PreviousSecret = secrets.current, secrets.previous
	if o.tls.uses("peers") { // nodes authenticate each other by certificates
		return p, nil
	}
	return p, o.secret.admit(&p.cluster, log)
}

// announcedClient returns the client address that a node announces without
// --advertise-client-addr. If the client address is unspecified, such as 0.0.0.0,
// the node announces the host of its peer address with the client port. "holdfast
// top" and "holdfast debug bundle" connect to the announced addresses of all nodes,
// so these addresses must work on other machines.
func announcedClient(client, peer string) string {
	host, port, err := net.SplitHostPort(client)
	if err != nil || !unspecified(host) {
		return client
	}
	if host, _, err = net.SplitHostPort(peer); err != nil || unspecified(host) {
		return client
	}
	return net.JoinHostPort(host, port)
}

func (o *options) config(log, scriptLog hclog.Logger, fatal func(error)) (cluster.Config, error) {
	peers, err := cluster.ParsePeers(o.peers)
	if err != nil {
		return cluster.Config{}, err
	}
	if o.advertisePeer == "" {
		for _, p := range peers {
			if p.ID == o.nodeID {
				o.advertisePeer = p.Addr
			}
		}
	}
	if o.advertiseClient == "" {
		o.advertiseClient = announcedClient(o.clientAddr, cmp.Or(o.advertisePeer, o.peerAddr))
	}
	if o.options.MaxMemory < 0 {
		o.options.MaxMemory = defaultMaxMemory()
	}
	if o.options.LeaseTimeout > o.options.HeartbeatTimeout {
		o.options.LeaseTimeout = o.options.HeartbeatTimeout
	}
	cfg := cluster.Config{
		NodeID: o.nodeID, DataDir: o.dataDir, LogStore: o.logStore,
		PeerAddr: o.peerAddr, AdvertisePeerAddr: o.advertisePeer,
		ClientAddr: o.advertiseClient, SentinelAddr: o.discovery.advertised(), HTTPAddr: o.httpAddr,
		RunID: resp.NewRunID(),
		Peers: peers, Options: o.options, Version: o.version, Logger: log, Fatal: fatal,
		Scripts: newInterpreter(o.options.ScriptTime, o.logging.scriptRate, scriptLog),
		Catalog: resp.NewCatalog(command.NewTable()),
	}
	if o.discovery.clusterMode {
		cfg.ScriptRules = slots.ForeignDatabase
	}
	return cfg, nil
}

// newInterpreter returns the interpreter of scripts. The cluster enforces limit
// itself; the interpreter's own limit of twice that time is a backstop. logRate is
// the number of lines of redis.log per second.
func newInterpreter(limit time.Duration, logRate int, log hclog.Logger) *script.Runner {
	c := script.DefaultConfig()
	c.LogRate = logRate
	c.Limits = script.LimitsFor(2 * limit)
	c.Log = func(level int, text string) {
		switch level {
		case script.LogDebug, script.LogVerbose:
			log.Debug(text)
		case script.LogNotice:
			log.Info(text)
		default:
			log.Warn(text)
		}
	}
	return script.NewRunner(c)
}
