package mobile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/sluice-net/sluice/internal/drift"
	"github.com/sluice-net/sluice/internal/folderlock"
	"github.com/sluice-net/sluice/internal/listen"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath"
	"github.com/sluice-net/sluice/services/handover/mobile/datapath/ebpf"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
)

// Run runs a daemon until ctx ends, and then restores the device to its earlier state. If an
// earlier daemon was killed, Run continues its work, and restores the device to the state before
// that daemon.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("mobile: %w", err)
	}
	journal, err := device.OpenJournal(cfg.StateDir)
	if err != nil {
		return fmt.Errorf("mobile: %w", err)
	}
	defer func() { err = errors.Join(err, journal.Undo(nil), journal.Close()) }()
	if n := journal.Len(); n > 0 {
		cfg.Log.Warn("an earlier daemon was killed: this one continues its work and undoes its changes, too", "changes", n)
		if err := journal.Undo(func(c device.Change) bool { return !cfg.owns(c) }); err != nil {
			cfg.Log.Error("not all changes could be undone", "error", err)
		}
	}
	lock, err := folderlock.TakeNamespace(lockDir, "mobile-"+cfg.VNI)
	switch {
	case errors.Is(err, folderlock.ErrBusy):
		return fmt.Errorf("mobile: only one daemon can have the virtual interface: %w", err)
	case err != nil: // for instance without root, but with the capabilities
		cfg.Log.Warn("a daemon with the same virtual interface and another folder for its state is not noticed", "error", err)
	default:
		defer lock.Close()
	}
	var listener net.Listener
	if cfg.Socket != "" {
		if listener, err = listen.Unix(cfg.Socket, cfg.SocketGroup); err != nil {
			return fmt.Errorf("mobile: control %w", err)
		}
		defer listener.Close()
	}
	path, err := ebpf.Open(ctx, datapath.Config{VNI: cfg.VNI, VNIMAC: cfg.VNIMAC, MTU: cfg.MTU, Log: cfg.Log})
	if err != nil {
		return fmt.Errorf("mobile: datapath: %w", err)
	}
	defer func() {
		if e := path.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("mobile: datapath: %w", e))
		}
	}()
	if err := device.NoIPv6(cfg.VNI); err != nil {
		return fmt.Errorf("mobile: %w", err)
	}
	d := newDaemon(cfg, &machine{cfg: cfg, journal: journal}, path)
	if d.keeper, err = drift.Open(d.drift, append(d.things(), device.NoIPv6Thing(cfg.VNI))...); err != nil {
		return fmt.Errorf("mobile: %w", err)
	}
	cfg.Log.Info("running", "vni", cfg.VNI, "address", cfg.VNIMAC, "interfaces", len(cfg.Interfaces))
	return d.run(ctx, listener)
}

// lockDir is the folder of the lock that a daemon has on its virtual interface.
const lockDir = "/run/sluice"

// owns reports whether a change of an earlier daemon concerns an interface, setting or file that this
// daemon uses as well.
func (c Config) owns(change device.Change) bool {
	if f := change.File; f != nil {
		return f.Path == c.Resolver
	}
	return slices.ContainsFunc(c.Interfaces, func(i Interface) bool { return i.Name == change.Link() })
}

// Restore undoes the changes that a killed daemon has made to the device, and removes what its datapath
// has created. restored is the number of changes undone, plus one if a datapath was left.
func Restore(ctx context.Context, cfg Config) (restored int, err error) {
	cfg = cfg.withDefaults()
	journal, err := device.OpenJournal(cfg.StateDir)
	if err != nil {
		return 0, fmt.Errorf("mobile: %w", err)
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	before := journal.Len()
	err = journal.Undo(nil)
	restored = before - journal.Len()
	links, linkErr := device.Links(cfg.VNI)
	if linkErr != nil || len(links) == 0 || !links[0].Present {
		return restored, errors.Join(err, linkErr)
	}
	// Opening a datapath takes over what another one has left, and closing removes it.
	path, pathErr := ebpf.Open(ctx, datapath.Config{VNI: cfg.VNI, VNIMAC: cfg.VNIMAC, MTU: cfg.MTU, Log: cfg.Log})
	if pathErr != nil {
		return restored, errors.Join(err, fmt.Errorf("mobile: datapath: %w", pathErr))
	}
	return restored + 1, errors.Join(err, path.Close())
}
