package serve

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/holdfast-kv/holdfast/cmd/flags"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// discovery holds the flags that let clients find the leader by themselves.
type discovery struct {
	sentinelAddr, advertiseSentinel string
	masterName                      string
	clusterMode                     bool
}

func (d *discovery) flags(f *pflag.FlagSet) {
	f.StringVar(&d.sentinelAddr, "sentinel-addr", "", "address for clients that use Redis Sentinel; empty for none")
	f.StringVar(&d.advertiseSentinel, "advertise-sentinel-addr", "",
		"Sentinel address that this node announces to clients and other nodes (default: --sentinel-addr)")
	f.StringVar(&d.masterName, "sentinel-master-name", "mymaster", "name of the master that Sentinel clients ask for")
	f.BoolVar(&d.clusterMode, "cluster-mode", false,
		"act as a Redis Cluster of one shard: followers redirect clients to the leader (MOVED)")
}

// validate returns an error about the first flag whose value cannot work. Clients
// must be able to connect to the addresses that the node announces.
func (d *discovery) validate(clientAddr, advertiseClient string) error {
	if advertiseClient != "" {
		if err := reachable("advertise-client-addr", advertiseClient); err != nil {
			return err
		}
	}
	if d.sentinelAddr == "" && !d.clusterMode {
		return nil
	}
	if d.sentinelAddr != "" && d.clusterMode {
		return errors.New("--sentinel-addr and --cluster-mode exclude each other: clients of Sentinel do not follow " +
			"MOVED")
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
	if err := flags.CheckAddr(d.sentinelAddr); err != nil {
		return fmt.Errorf("--sentinel-addr is %q: %w", d.sentinelAddr, err)
	}
	if d.masterName == "" {
		return errors.New("--sentinel-master-name is empty")
	}
	for _, b := range []byte(d.masterName) {
		if b <= ' ' || b > '~' { // a blank ends the name in events of the Sentinel
			return fmt.Errorf("--sentinel-master-name is %q: use only letters, digits and punctuation", d.masterName)
		}
	}
	return reachable("advertise-sentinel-addr", d.advertised())
}

// reachable returns an error if clients cannot connect to an address that the node
// announces to them.
func reachable(flag, addr string) error {
	if err := flags.CheckAddr(addr); err != nil {
		return fmt.Errorf("--%s is %q: %w", flag, addr, err)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if unspecified(host) {
		return fmt.Errorf("--%s: clients cannot connect to %q, which this node announces to them: use the "+
			"name or an IP address of the machine", flag, addr)
	}
	return nil
}

// unspecified reports whether a host stands for all addresses of this machine.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// advertised returns the announced address of the Sentinel, or "" for none.
func (d *discovery) advertised() string {
	if d.sentinelAddr == "" || d.advertiseSentinel == "" {
		return d.sentinelAddr
	}
	return d.advertiseSentinel
}

// mode returns the mode of the client port.
func (d *discovery) mode() resp.Mode {
	switch {
	case d.clusterMode:
		return resp.Clustered
	case d.sentinelAddr != "":
		return resp.Monitored
	}
	return resp.Standalone
}

// sentinelPort is the Sentinel port; Server is nil if there is none.
type sentinelPort struct{ *resp.Server }

// Close closes the port, if there is one.
func (p sentinelPort) Close() error {
	if p.Server == nil {
		return nil
	}
	return p.Server.Close()
}

// Wait calls Server.Wait, if there is a Sentinel port.
func (p sentinelPort) Wait() {
	if p.Server != nil {
		p.Server.Wait()
	}
}

// listen serves the Sentinel port, if there is one. port is the configuration
// of the client port; the Sentinel port shares its limits and password.
func (d *discovery) listen(port resp.Config, ln net.Listener, node clusterAdapter,
	table *fsm.Table) (sentinelPort, error) {
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
