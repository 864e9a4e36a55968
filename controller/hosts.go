package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/network/hosts"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/store"
)

const (
	// hostPrefix is the prefix of the keys of stored hosts. The MAC address and the VLAN follow.
	hostPrefix = "network/hosts/"
	// hostFormat is the version of the stored form of a host. hostsAtOnce is the number of hosts
	// that are stored in one transaction.
	hostFormat  = 1
	hostsAtOnce = 128
)

// storedHost is the stored form of a host.
type storedHost struct {
	Format int                 `json:"format"`
	Switch openflow.DatapathID `json:"switch"`
	Port   uint32              `json:"port"`
	IPs    []netip.Addr        `json:"ips,omitempty"`
	Router hosts.RouterState   `json:"router,omitempty"`
	Again  bool                `json:"again,omitempty"`
	Seen   time.Time           `json:"seen"`
}

// hostKey returns the key of a host in the store.
func hostKey(mac openflow.MAC, vlan uint16) string {
	return hostPrefix + mac.String() + "/" + strconv.Itoa(int(vlan))
}

// readHost decodes a stored host.
func readHost(key string, value []byte) (network.HostRecord, error) {
	var r network.HostRecord
	id, number, _ := strings.Cut(strings.TrimPrefix(key, hostPrefix), "/")
	vlan, err := strconv.ParseUint(number, 10, 12)
	if err != nil {
		return r, fmt.Errorf("VLAN: %w", err)
	}
	if err := r.MAC.UnmarshalText([]byte(id)); err != nil {
		return r, err
	}
	r.VLAN = uint16(vlan)
	if hostKey(r.MAC, r.VLAN) != key {
		return r, errors.New("the key is not one of a host")
	}
	var s storedHost
	if err := json.Unmarshal(value, &s); err != nil {
		return r, err
	}
	switch {
	case s.Format != hostFormat:
		return r, fmt.Errorf("format %d: this version knows %d", s.Format, hostFormat)
	case s.Port == 0 || s.Port > openflow.PortMax:
		return r, fmt.Errorf("port %d: it is no switch's", s.Port)
	case len(s.IPs) > hosts.DefaultMaxIPs:
		return r, fmt.Errorf("%d addresses: a host has at most %d", len(s.IPs), hosts.DefaultMaxIPs)
	case s.Router > hosts.IsRouter:
		return r, fmt.Errorf("router %d: not known", s.Router)
	}
	r.At = network.PortRef{Switch: s.Switch, Port: s.Port}
	r.IPs, r.Router, r.Again, r.Seen = s.IPs, s.Router, s.Again, s.Seen
	return r, nil
}

// loadHosts reads the stored hosts. It skips an entry that it cannot read, and keeps it in the
// store, because a later version may have written it.
func (c *Controller) loadHosts(ctx context.Context) ([]network.HostRecord, error) {
	entries, err := c.store.List(ctx, hostPrefix)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	records := make([]network.HostRecord, 0, len(entries))
	var left []error
	for _, e := range entries {
		r, err := readHost(e.Key, e.Value)
		if err != nil {
			left = append(left, fmt.Errorf("%s: %w", e.Key, err))
			continue
		}
		records = append(records, r)
	}
	if len(left) > 0 {
		c.log.Warn("some stored hosts cannot be read, and stay unknown until they send packets", "number", len(left), "first", left[0])
	}
	return records, nil
}

// storeHosts stores changes of hosts.
func (c *Controller) storeHosts(ctx context.Context, changed []network.HostNote) error {
	for part := range slices.Chunk(changed, hostsAtOnce) {
		ops := make([]store.Op, len(part))
		for i, n := range part {
			key := hostKey(n.MAC, n.VLAN)
			if n.Gone {
				ops[i] = store.OpDelete(key)
				continue
			}
			value, err := json.Marshal(storedHost{
				Format: hostFormat, Switch: n.At.Switch, Port: n.At.Port, IPs: n.IPs, Router: n.Router, Again: n.Again, Seen: n.Seen,
			})
			if err != nil {
				return fmt.Errorf("host %v: %w", n.MAC, err)
			}
			ops[i] = store.OpPut(key, value)
		}
		if err := c.store.Apply(ctx, ops...); err != nil {
			return err
		}
	}
	return nil
}
