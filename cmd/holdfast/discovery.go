package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// discovery are the flags about how clients find the leader by themselves.
type discovery struct {
	sentinelAddr, advertiseSentinel string
	masterName                      string
	clusterMode                     bool
}

func (d *discovery) flags(f *pflag.FlagSet) {
	f.StringVar(&d.sentinelAddr, "sentinel-addr", "", "where clients that use Redis Sentinel connect; none if empty")
	f.StringVar(&d.advertiseSentinel, "advertise-sentinel-addr", "", "Sentinel address that others are told (default: --sentinel-addr)")
	f.StringVar(&d.masterName, "sentinel-master-name", "mymaster", "what Sentinel calls the leader")
	f.BoolVar(&d.clusterMode, "cluster-mode", false, "speak to clients as a Redis Cluster of one shard: followers send them to the leader (MOVED)")
}

// validate names the first flag that cannot work. What clients are sent to must be
// an address that they can reach.
func (d *discovery) validate(clientAddr, advertiseClient string) error {
	if d.sentinelAddr == "" && !d.clusterMode {
		return nil
	}
	if d.sentinelAddr != "" && d.clusterMode {
		return errors.New("--sentinel-addr and --cluster-mode exclude each other: clients of Sentinel do not follow MOVED")
	}
	if advertiseClient == "" {
		advertiseClient = clientAddr
	}
	if err := reachable("advertise-client-addr", advertiseClient); err != nil {
		return err
	}
	if d.clusterMode {
		return nil
	}
	if err := checkAddr(d.sentinelAddr); err != nil {
		return fmt.Errorf("--sentinel-addr is %q: %w", d.sentinelAddr, err)
	}
	if d.masterName == "" {
		return errors.New("--sentinel-master-name is empty")
	}
	for _, b := range []byte(d.masterName) {
		if b <= ' ' || b > '~' { // it stands between blanks in events
			return fmt.Errorf("--sentinel-master-name is %q: only letters, digits and signs may stand in it", d.masterName)
		}
	}
	return reachable("advertise-sentinel-addr", d.advertised())
}

// reachable checks an address that clients are told.
func reachable(flag, addr string) error {
	if err := checkAddr(addr); err != nil {
		return fmt.Errorf("--%s is %q: %w", flag, addr, err)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("--%s: %q is no address that a client can connect to, and clients are sent there", flag, addr)
	}
	return nil
}

// advertised is where the others are told that the Sentinel is, "" for none.
func (d *discovery) advertised() string {
	if d.sentinelAddr == "" || d.advertiseSentinel == "" {
		return d.sentinelAddr
	}
	return d.advertiseSentinel
}

// mode is what the client port pretends to be.
func (d *discovery) mode() resp.Mode {
	switch {
	case d.clusterMode:
		return resp.Clustered
	case d.sentinelAddr != "":
		return resp.Monitored
	}
	return resp.Standalone
}

// sentinelPort is the Sentinel port, if there is one.
type sentinelPort struct{ *resp.Server }

// Close closes the port.
func (p sentinelPort) Close() error {
	if p.Server == nil {
		return nil
	}
	return p.Server.Close()
}

// listen serves the Sentinel port. What it shares with the client port (limits,
// password) is in port.
func (d *discovery) listen(port resp.Config, ln net.Listener, node clusterAdapter, table *fsm.Table) (sentinelPort, error) {
	if d.sentinelAddr == "" {
		return sentinelPort{}, nil
	}
	port.Listener = ln
	port.Addr, port.Mode, port.MasterName = d.sentinelAddr, resp.Sentinel, d.masterName
	port.Logger = port.Logger.Named("sentinel")
	s, err := resp.Listen(port, node, table)
	if err != nil {
		return sentinelPort{}, err
	}
	return sentinelPort{s}, nil
}
