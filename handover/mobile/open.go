package mobile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/handover/mobile/datapath"
	"github.com/sluice-net/sluice/handover/mobile/datapath/ebpf"
	"github.com/sluice-net/sluice/handover/mobile/datapath/ovs"
	"github.com/sluice-net/sluice/handover/mobile/device"
	"github.com/sluice-net/sluice/openflow"
)

// Kinds of datapath.
const (
	KindAuto = "auto" // eBPF where the kernel can, else Open vSwitch
	KindEBPF = "ebpf"
	KindOVS  = "ovs"
)

// Opener returns what opens a datapath of the kind.
func Opener(kind string, o ovs.Options) (func(context.Context, datapath.Config) (datapath.Datapath, error), error) {
	openEBPF := func(ctx context.Context, c datapath.Config) (datapath.Datapath, error) {
		d, err := ebpf.Open(ctx, c)
		if err != nil {
			return nil, err // not d: an interface that holds a nil pointer is not nil
		}
		return d, nil
	}
	openOVS := func(ctx context.Context, c datapath.Config) (datapath.Datapath, error) {
		d, err := ovs.Open(ctx, c, o)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	switch kind {
	case KindEBPF:
		return openEBPF, nil
	case KindOVS:
		return openOVS, nil
	case KindAuto, "":
		return func(ctx context.Context, c datapath.Config) (datapath.Datapath, error) {
			d, err := openEBPF(ctx, c)
			if !errors.Is(err, datapath.ErrUnsupported) {
				return d, err
			}
			if c.Log != nil {
				c.Log.Info("the kernel carries no datapath, Open vSwitch does", "why", err)
			}
			d, ovsErr := openOVS(ctx, c)
			if ovsErr != nil {
				return nil, errors.Join(err, ovsErr)
			}
			return d, nil
		}, nil
	}
	return nil, fmt.Errorf("datapath %q: use %s, %s or %s", kind, KindAuto, KindEBPF, KindOVS)
}

// vniMACFile holds an address that was made, so that it stays when the interface
// it was made from is not there.
const vniMACFile = "vni-mac"

// ChooseVNIMAC is the virtual interface's address if none is configured: made,
// once, from that of the first interface that is there, and kept in the folder if
// keep says so.
func ChooseVNIMAC(stateDir string, interfaces []string, keep bool) (openflow.MAC, error) {
	path := filepath.Join(stateDir, vniMACFile)
	if b, err := os.ReadFile(path); err == nil {
		mac, err := openflow.ParseMAC(strings.TrimSpace(string(b)))
		if err != nil {
			return openflow.MAC{}, fmt.Errorf("%s: %w", path, err)
		}
		return mac, nil
	}
	links, err := device.Links(interfaces...)
	if err != nil {
		return openflow.MAC{}, err
	}
	for _, l := range links {
		if !l.Present || l.MAC.IsZero() {
			continue
		}
		mac := madeFrom(l.MAC)
		if !keep {
			return mac, nil
		}
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			return openflow.MAC{}, fmt.Errorf("folder for state: %w", err)
		}
		return mac, device.WriteFile(path, []byte(mac.String()+"\n"), 0o600)
	}
	return openflow.MAC{}, fmt.Errorf("none of the interfaces %v is there to make the virtual interface's address from: set vni.mac", interfaces)
}

// madeFrom is a locally administered unicast address.
func madeFrom(mac openflow.MAC) openflow.MAC {
	sum := sha256.Sum256(append([]byte("sluice vni "), mac[:]...))
	out := openflow.MAC(sum[:6])
	out[0] = out[0]&^1 | 2
	return out
}

// keyBytes is the length of a device's key.
const keyBytes = 32

// ReadKey reads a device's key from a file.
func ReadKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the device's key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != keyBytes {
		return nil, fmt.Errorf("the device's key in %s: want %d hex digits", path, 2*keyBytes) // without what is there
	}
	return key, nil
}
