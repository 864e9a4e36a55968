package dhcp

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/handover/registry"
)

// OptionSignature is the option that carries a device's signature. It is one of the options
// reserved for use within a site.
const OptionSignature = dhcpv4.GenericOptionCode(224)

// Window is how much the time in a signature may differ from the server's.
const Window = 30 * time.Second

// The option consists of a version, the time in nanoseconds since 1970, a nonce, and the
// HMAC-SHA256 of these and of the fields of the message that a signature covers.
const (
	signVersion = 2
	timeAt      = 1
	nonceAt     = timeAt + 8
	macAt       = nonceAt + nonceBytes
	nonceBytes  = 16
	optionBytes = macAt + sha256.Size
	signLabel   = "sluice dhcp 224"
)

// Errors of signatures.
var (
	ErrUnsigned  = errors.New("the message is not signed")
	ErrSignature = errors.New("the signature is not the device's")
	ErrStale     = errors.New("the signature's time is not now")
	ErrReplay    = errors.New("the signature, or a newer one, was used before")
)

// Stamp identifies a signature among all signatures of a device.
type Stamp struct {
	Time  time.Time
	Nonce [nonceBytes]byte
}

// Sign adds the device's signature to the message, in place of an earlier one. The signature is valid
// once, for a frame with the source src, within Window of now. The fields that it covers must not be
// changed afterwards: type, transaction, hardware address, requested and own address, and the
// chosen server. The server is covered so that a signature made for another network is not
// accepted in ours.
func Sign(key []byte, m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error {
	if len(key) != registry.KeyBytes {
		return fmt.Errorf("dhcp: sign: key of %d bytes: want %d", len(key), registry.KeyBytes)
	}
	v := make([]byte, macAt, optionBytes)
	v[0] = signVersion
	binary.BigEndian.PutUint64(v[timeAt:], uint64(now.UnixNano()))
	if _, err := rand.Read(v[nonceAt:macAt]); err != nil {
		return fmt.Errorf("dhcp: sign: %w", err)
	}
	if m.Options == nil {
		m.Options = dhcpv4.Options{}
	}
	m.Options[OptionSignature.Code()] = mac(v, key, m, src, v)
	return nil
}

// Verify verifies the message's signature by the key and returns its time and nonce. The caller
// must make sure that the signature was not used before, as [Server.Verify] does.
func Verify(key []byte, m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) (Stamp, error) {
	v, ok := m.Options[OptionSignature.Code()]
	if !ok {
		return Stamp{}, ErrUnsigned
	}
	if len(key) != registry.KeyBytes {
		return Stamp{}, fmt.Errorf("%w: it has no key here", ErrSignature)
	}
	if len(v) != optionBytes || v[0] != signVersion {
		return Stamp{}, fmt.Errorf("%w: option of %d bytes that is not version %d", ErrSignature, len(v), signVersion)
	}
	var sum [sha256.Size]byte
	if !hmac.Equal(v[macAt:], mac(sum[:0], key, m, src, v[:macAt])) {
		return Stamp{}, ErrSignature
	}
	s := Stamp{Time: time.Unix(0, int64(binary.BigEndian.Uint64(v[timeAt:]))), Nonce: [nonceBytes]byte(v[nonceAt:macAt])}
	if off := s.Time.Sub(now); off > Window || off < -Window {
		return Stamp{}, fmt.Errorf("%w: it is off by %v, more than %v: set the device's clock", ErrStale, off.Round(time.Second), Window)
	}
	return s, nil
}

// mac appends the HMAC of the option's head and of the message to b.
func mac(b, key []byte, m *dhcpv4.DHCPv4, src openflow.MAC, head []byte) []byte {
	chaddr, requested, own := hardware(m), as4(addrOption(m, dhcpv4.OptionRequestedIPAddress)), as4(addr(m.ClientIPAddr))
	server := as4(addrOption(m, dhcpv4.OptionServerIdentifier))
	var text [len(signLabel) + macAt + 1 + 4 + 6 + 6 + 4 + 4 + 4]byte
	t := append(text[:0], signLabel...)
	t = append(t, head...)
	t = append(t, byte(m.MessageType()))
	t = append(t, m.TransactionID[:]...)
	t = append(t, chaddr[:]...)
	t = append(t, src[:]...)
	t = append(t, requested[:]...)
	t = append(t, own[:]...)
	t = append(t, server[:]...)
	h := hmac.New(sha256.New, key)
	h.Write(t)
	return h.Sum(b)
}

// as4 returns the address as bytes, or zero if it is invalid.
func as4(a netip.Addr) (b [4]byte) {
	if a.IsValid() {
		b = a.As4()
	}
	return b
}

// maxStamps bounds the signatures that are remembered of one device. If more arrive within the
// window, the oldest are forgotten, and signatures no newer than those are no longer accepted.
const maxStamps = 256

// replayGuard remembers the signatures that were used, so that none is accepted twice. It remembers at
// most maxStamps signatures of each device, and none for longer than a signature is valid.
type replayGuard struct {
	mu      sync.Mutex
	devices map[string]*stamps
	swept   time.Time
}

// stamps holds the signatures of one device, oldest first, all newer than floor.
type stamps struct {
	list  []Stamp
	floor time.Time
}

// newReplayGuard returns an empty replayGuard.
func newReplayGuard() *replayGuard { return &replayGuard{devices: make(map[string]*stamps)} }

// use marks the stamp as used. It returns an error if the stamp was used before or is not newer
// than floor.
func (g *replayGuard) use(device string, s Stamp, floor, now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now)
	d := g.devices[device]
	if d == nil {
		d = &stamps{}
		g.devices[device] = d
	}
	if d.floor.After(floor) {
		floor = d.floor
	}
	if !s.Time.After(floor) {
		return fmt.Errorf("%w: %v newer", ErrReplay, floor.Sub(s.Time))
	}
	at, found := slices.BinarySearchFunc(d.list, s, Stamp.compare)
	if found {
		return ErrReplay
	}
	d.list = slices.Insert(d.list, at, s)
	if len(d.list) > maxStamps {
		d.floor = d.list[0].Time
		d.list = slices.Delete(d.list, 0, 1)
	}
	return nil
}

// compare orders stamps by time, then by nonce.
func (s Stamp) compare(o Stamp) int {
	return cmp.Or(s.Time.Compare(o.Time), slices.Compare(s.Nonce[:], o.Nonce[:]))
}

// sweep removes stamps that have expired, at most once per window.
func (g *replayGuard) sweep(now time.Time) {
	if now.Sub(g.swept) < Window {
		return
	}
	g.swept = now
	for id, d := range g.devices {
		old, _ := slices.BinarySearchFunc(d.list, now.Add(-Window), func(s Stamp, t time.Time) int { return s.Time.Compare(t) })
		d.list = slices.Delete(d.list, 0, old)
		if len(d.list) == 0 && now.Sub(d.floor) > Window {
			delete(g.devices, id)
		}
	}
}
