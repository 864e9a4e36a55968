package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

const (
	// shortestAbsence is the least time for which the device is away.
	shortestAbsence = 4 * time.Second
	// awayRate is the number of messages a second to a device that is away. A storage node writes
	// each to its disk.
	awayRate = 100
	// peeringLink is the link between the two domains' roots. Handover uses it; without handover the
	// domains are joined by their routers only.
	peeringLink = "peering"
	// storageHost is the host of the storage node. It is at the first domain's root.
	storageHost = "storage"
)

// newMobilityDomains returns the lab with two domains, each with a controller. The device has a link
// to each of them.
func newMobilityDomains(env *Env, raw *CSV) *mobilityRig {
	o := lab.MobilityOptions{Levels: 2, Radio: accessLine}
	a, b := o.Domains()
	t := lab.MobilityDomains("mfdomains", o)
	t.Hosts = append(t.Hosts, lab.Host{Name: storageHost, Dynamic: true})
	t.Links = append(t.Links, lab.Both(storageHost, a.Root, delayline.Params{}))
	rig := &mobilityRig{
		peers:    &peersRig{env: env, domain: a, raw: raw, port: peersPort},
		topology: t, near: a, far: b,
		networks: []testbed.HandoverNetwork{{Name: "a", Network: a}, {Name: "b", Network: b}},
	}
	rig.startHosts = rig.startDomains
	return rig
}

// domainMoves returns a move to the other domain, and the absence of the device from both.
func (rig *mobilityRig) domainMoves() []mobilityMove {
	domain := rig.changeLink("another domain")
	domain.most = mobilityMostFar
	from := rig.near.Gateway
	domain.ways = append([]mobilityWay{rig.names("names, by the name services", from, theDevice, 0)}, rig.moving()...)
	domain.served = rig.carried(seamlessTCP, seamlessUDP)
	stored := rig.names("names, a storage node keeps chunks", from, theDevice, frame.DelayTolerant)
	stored.stored = true
	away := mobilityMove{
		name: "away", rig: rig, most: mobilityMostFar, away: true, rate: awayRate, steady: mobilitySteady,
		do: rig.goAway, undo: func(context.Context) error { return nil },
		ways:   append([]mobilityWay{stored, rig.names("names, the sender keeps chunks", from, theDevice, 0)}, rig.staying()...),
		served: rig.carried(seamlessTCP),
	}
	return []mobilityMove{domain, away}
}

// absence returns how long the device is away in a run. The times are spread over a factor of two,
// as is the time between two attempts of a sender that doubles it.
func absence(run, runs int) time.Duration {
	return time.Duration(float64(shortestAbsence) * math.Exp2((float64(run)+0.5)/float64(runs)))
}

// goAway puts the device out of reach, and back.
func (rig *mobilityRig) goAway(ctx context.Context) error {
	set := func(up bool) error {
		return errors.Join(rig.peers.lab.SetLink(ctx, accessLink(0), up), rig.peers.lab.SetLink(ctx, accessLink(1), up))
	}
	began := time.Now()
	if err := set(false); err != nil {
		return err
	}
	if err := tasks.Sleep(ctx, rig.absence-rig.absence/10); err != nil {
		return err
	}
	all, err := testbed.KeptChunks(ctx, rig.peers.env.Binary, rig.custodyDir())
	if err != nil {
		return err
	}
	for _, n := range all {
		rig.kept += n
	}
	if err := tasks.Sleep(ctx, rig.absence-time.Since(began)); err != nil {
		return err
	}
	return set(true)
}

func (rig *mobilityRig) custodyDir() string {
	return filepath.Join(rig.dir, "custody")
}

// startDomains starts a controller and a name service in each domain, hosts of names at the first
// domain's router and on the device, and a storage node in the first domain.
func (rig *mobilityRig) startDomains(ctx context.Context) error {
	env, l := rig.peers.env, rig.peers.lab
	if err := l.SetLink(ctx, peeringLink, false); err != nil {
		return err
	}
	for _, n := range rig.networks {
		c, err := testbed.Deploy(ctx, testbed.Options{Lab: l, Binary: env.Binary, LogDir: env.Dir, Controller: n.Name})
		if err != nil {
			return err
		}
		rig.controllers = append(rig.controllers, c)
	}
	if err := rig.addresses(ctx); err != nil {
		return err
	}
	if err := runAll(ctx, l.Host(storageHost), "ip link set eth0 up"); err != nil {
		return err
	}
	key := filepath.Join(rig.dir, "storage.key")
	storage, err := exec.CommandContext(ctx, env.Binary, "mf", "name", "new", key).Output()
	if err != nil {
		return fmt.Errorf("make the storage node's name: %w", err)
	}
	services := map[string]string{}
	var domains []string
	for _, n := range rig.networks {
		services[n.Name] = n.Network.ServerAddr.String() + ":5001"
		domains = append(domains, "--domain", n.Name+"="+services[n.Name])
	}
	for _, n := range rig.networks {
		args := append([]string{"gnrs", "--dir", filepath.Join(rig.dir, "names-"+n.Name), "--self", n.Name, "--replicas", "2"}, domains...)
		if err := rig.startProgram(ctx, n.Network.Server, "names-"+n.Name, args...); err != nil {
			return err
		}
	}
	far := func(domain string) []string {
		return []string{"--interface", "eth0", "--udp", "5028", "--names", services[domain]}
	}
	return errors.Join(
		rig.startHost(ctx, rig.near.Gateway, rig.near.Gateway, append(far("a"), "--storage", strings.TrimSpace(string(storage)))...),
		rig.startHost(ctx, theDevice, theDevice, far("b")...),
		rig.startHost(ctx, storageHost, storageHost, "--interface", "eth0"),
		rig.startProgram(ctx, storageHost, "storage-node", "storage", "--name-key", key, "--dir", rig.custodyDir(), "--socket", rig.socket(storageHost)))
}
