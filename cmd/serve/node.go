package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/dashboard"
	"github.com/holdfast-kv/holdfast/resp"
)

// stopTimeout bounds the transfer of leadership and the commands in flight when
// a node stops. The process exits within 5 s of SIGTERM.
const stopTimeout = 4 * time.Second

// serve runs a node until ctx ends. It first binds the addresses, then opens
// the node, then serves clients and the HTTP port. (Without TLS, package
// cluster binds the peer address when it opens the node.) At the end, serve
// closes the ports, and then the node. It keeps the connections of clients
// until their commands have an outcome.
func serve(ctx context.Context, o options) error {
	logs, err := newNodeLog(o.logging.level, o.logging.format)
	if err != nil {
		return err
	}
	log := logs.main
	p, err := o.prepare(log, logs.scripts, true, func(err error) {
		// Print at once and do not clean up: on a stalled disk, cleaning up
		// would hang.
		fmt.Fprintln(os.Stderr, "holdfast: fatal:", err)
		os.Exit(2)
	})
	if err != nil {
		return err
	}
	tracer, err := o.tracing.open(&p.cluster, log)
	if err != nil {
		return err
	}
	defer tracer.close()
	auditLog, file, err := o.logging.audit.open(logs)
	if err != nil {
		return err
	}
	r := newReloader(&o, p, logs, auditLog, file)
	defer r.watch()()
	tuner := tuneMemory(p.cluster.Options.MaxMemory)
	useThreads(o.threads)
	stopClock, err := o.armTests(ctx, log, &p.cluster)
	if err != nil {
		return err
	}
	defer stopClock()
	for {
		bound, err := o.bind(p.stores)
		if err != nil {
			return err
		}
		if bound.peers != nil {
			p.cluster.PeerListener, p.cluster.PeerDialer = bound.peers, peerDialer(p.stores.peers)
		}
		node, err := cluster.Open(p.cluster)
		switch {
		case err == nil:
			tracer.record(node)
			tuner.use(func() int64 { return node.Memory().MaxMemory })
			return errors.Join(o.run(ctx, log, p, bound, node, auditLog, r), file.close())
		case !errors.Is(err, syscall.ENOSPC):
			return errors.Join(err, bound.close())
		}
		if waited, err := o.awaitRoom(ctx, log, bound, err); !waited || err != nil {
			return err
		}
	}
}

// armTests arms the failpoint and starts the clock that the flags for tests name.
// stop ends the clock.
func (o *options) armTests(ctx context.Context, log hclog.Logger, cfg *cluster.Config) (stop func(), err error) {
	if o.tests.killAt != "" {
		if err := failpoint.Arm(o.tests.killAt); err != nil {
			return nil, fmt.Errorf("--test-kill-at is %q: %w", o.tests.killAt, err)
		}
		log.Error("this node will kill itself at a failpoint (--test-kill-at): not for production", "point",
			o.tests.killAt)
	}
	if o.tests.clock == "" {
		return func() {}, nil
	}
	clock, err := newTestClock(o.tests.clock)
	if err != nil {
		return nil, err
	}
	log.Error("test clock enabled (--test-clock): not for production", "file", o.tests.clock)
	cfg.Clock = clock
	following, stopFollowing := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		clock.follow(following)
	}()
	return func() {
		stopFollowing()
		<-followed
	}, nil
}

// run serves clients of an open node until ctx ends, and then closes the node.
func (o *options) run(ctx context.Context, log hclog.Logger, p prepared, bound *ports, node *cluster.Node,
	audit hclog.Logger, r *reloader) error {
	r.node.Store(node)
	ctx, shutdown := context.WithCancel(ctx) // the command SHUTDOWN ends ctx too
	defer shutdown()
	var joined *joinedListener // nil without a dashboard
	var events dashboard.Events
	if o.web.dashboard {
		joined = joinListener(bound.clients)
		bound.clients, audit = joined, events.Audit(audit)
	}
	port := resp.Config{
		Shutdown: shutdown,
		Addr:     o.clientAddr, Listener: bound.clients, DataDir: o.dataDir,
		RequirePass: o.access.requirePass, Users: p.users, LockDelay: o.lockDelay,
		Limits: o.limits, LimitFlags: o.limitsInForce(), Logger: log.Named("resp"), Audit: audit, NodeID: o.nodeID,
		Mode: o.discovery.mode(), Topology: clusterAdapter{node}, RunID: p.cluster.RunID,
	}
	clients, err := resp.Listen(port, clusterAdapter{node}, node.Table())
	if err != nil {
		return errors.Join(err, node.Close(), bound.close())
	}
	sentinel, err := o.discovery.listen(port, bound.sentinel, clusterAdapter{node}, node.Table())
	if err != nil {
		err = errors.Join(err, clients.Close(), node.Close(), bound.close())
		clients.Wait()
		return err
	}
	r.clients.Store(clients)
	pages := newHTTPPages(node, clients, o.expiry(p.stores), &r.token, o.web, log.Named("http"))
	closeDashboard := func() {}
	if joined != nil {
		d, err := o.openDashboard(node, clients, joined, &r.token, &events, log.Named("dashboard"))
		if err != nil {
			err = errors.Join(err, sentinel.Close(), clients.Close(), node.Close(), bound.close())
			clients.Wait()
			return err
		}
		pages.dashboard, closeDashboard = d.Handler(), d.Close
	}
	web := serveHTTP(bound.http, pages)
	log.Info("node started", "node", o.nodeID, "clients", clients.Addr(), "peers", p.cluster.AdvertisePeerAddr,
		"http", o.httpAddr, "sentinel", o.discovery.sentinelAddr, "version", o.version, "pid", os.Getpid())

	<-ctx.Done()
	log.Info("stopping")
	begun := time.Now()
	closeDashboard()
	err = stopClients(log, node, clients)
	// The Sentinel port closes only after the transfer of leadership, so that
	// its subscribers receive the event of the new leader.
	err = errors.Join(err, sentinel.Close(), clients.Close(), web.Close(), node.Close())
	sentinel.Wait()
	clients.Wait()
	log.Info("stopped", "took", time.Since(begun).Round(time.Millisecond))
	return err
}

// stopClients transfers leadership and refuses new commands. It returns when the
// commands in flight have their outcome from the next leader, or after
// stopTimeout.
func stopClients(log hclog.Logger, node *cluster.Node, clients *resp.Server) error {
	stopping, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	handedOver := make(chan struct{})
	go func() {
		defer close(handedOver)
		node.HandOver(stopping)
	}()
	err := clients.Stop(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		// The cluster has no leader that could report the outcomes, for instance
		// because all nodes are stopped at once. The clients get the error that the
		// outcome is unknown, and the stop counts as clean.
		log.Warn("stopping although clients still wait for an outcome", "error", err)
		err = nil
	}
	<-handedOver
	return err
}
