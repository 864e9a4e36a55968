package mobile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/internal/wholefile"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/mobile/device"
)

// vniMACFile is the name of the file with the derived MAC address. Because of the file the address does
// not change when the interface from which it was derived is missing.
const vniMACFile = "vni-mac"

// ChooseVNIMAC returns the virtual interface's MAC address for a device for which none is configured.
// It returns the address stored in stateDir. If none is stored, it derives one from the MAC address of
// the first interface that is present, and stores it if keep is set.
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
		mac := deriveMAC(l.MAC)
		if !keep {
			return mac, nil
		}
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			return openflow.MAC{}, fmt.Errorf("folder for state: %w", err)
		}
		return mac, wholefile.Replace(path, []byte(mac.String()+"\n"), 0o600)
	}
	return openflow.MAC{}, fmt.Errorf("none of the interfaces %v is there to make the virtual interface's address from: set vni.mac", interfaces)
}

// deriveMAC returns a locally administered unicast address derived from mac.
func deriveMAC(mac openflow.MAC) openflow.MAC {
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
		return nil, fmt.Errorf("the device's key in %s: want %d hex digits", path, 2*keyBytes) // without the content, which is secret
	}
	return key, nil
}
