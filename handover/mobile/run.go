package mobile

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/device"
)

// Run runs a daemon until ctx ends, and puts everything on the device back as it
// was. What an earlier daemon has left is put back first.
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
		cfg.Log.Warn("an earlier daemon did not end in order: what it changed is put back", "changes", n)
		if err := journal.Undo(nil); err != nil {
			cfg.Log.Error("not all of it could be put back", "error", err)
		}
	}
	var listener net.Listener
	if cfg.Socket != "" {
		if listener, err = listen(cfg.Socket, cfg.SocketGroup); err != nil {
			return fmt.Errorf("mobile: %w", err)
		}
		defer listener.Close()
	}
	path, err := cfg.OpenDatapath(ctx, datapath.Config{VNI: cfg.VNI, VNIMAC: cfg.VNIMAC, MTU: cfg.MTU, Log: cfg.Log})
	if err != nil {
		return fmt.Errorf("mobile: datapath: %w", err)
	}
	defer func() {
		if e := path.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("mobile: datapath: %w", e))
		}
	}()
	d := newDaemon(cfg, &machine{cfg: cfg, journal: journal}, path)
	cfg.Log.Info("running", "vni", cfg.VNI, "address", cfg.VNIMAC, "datapath", path.Kind(), "interfaces", len(cfg.Interfaces))
	return d.run(ctx, listener)
}

// Restore puts back what a daemon has left that was killed: what it changed on
// the device, and what its datapath has made.
func Restore(ctx context.Context, cfg Config) (restored int, err error) {
	cfg = cfg.withDefaults()
	journal, err := device.OpenJournal(cfg.StateDir)
	if err != nil {
		return 0, fmt.Errorf("mobile: %w", err)
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	restored = journal.Len()
	err = journal.Undo(nil)
	links, linkErr := device.Links(cfg.VNI)
	if linkErr != nil || len(links) == 0 || !links[0].Present {
		return restored, errors.Join(err, linkErr)
	}
	// A datapath takes over what another one of its kind has left, and removes it.
	path, pathErr := cfg.OpenDatapath(ctx, datapath.Config{VNI: cfg.VNI, VNIMAC: cfg.VNIMAC, MTU: cfg.MTU, Log: cfg.Log})
	if pathErr != nil {
		return restored, errors.Join(err, fmt.Errorf("mobile: datapath: %w", pathErr))
	}
	return restored + 1, errors.Join(err, path.Close())
}
