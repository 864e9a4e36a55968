package discovery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-net/sluice/network/packet"
	"github.com/sluice-net/sluice/network/topology"
	"github.com/sluice-net/sluice/openflow"
)

// Multicast is the destination address of probes, which bridges do not forward.
var Multicast = openflow.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}

// The organisation-specific TLV of a probe has a locally administered OUI, a subtype, the body
// that the hash covers, and the hash.
const (
	oui      = "\x02\x51\x1c"
	subtype  = 1
	bodySize = 8 + 8 + 4 + 8 + 8
	hashSize = 16
)

// TLV types of LLDP.
const (
	tlvEnd       = 0
	tlvChassis   = 1
	tlvPort      = 2
	tlvTTL       = 3
	tlvOrg       = 127
	subtypeLocal = 7 // subtype of chassis and port: assigned by the sender
)

var be = binary.BigEndian

// probe is the body of a probe.
type probe struct {
	controller uint64
	from       topology.PortRef
	seq        uint64
	sent       time.Duration // since the controller's start
}

func (p probe) append(b []byte) []byte {
	b = be.AppendUint64(b, p.controller)
	b = be.AppendUint64(b, uint64(p.from.Switch))
	b = be.AppendUint32(b, p.from.Port)
	b = be.AppendUint64(b, p.seq)
	return be.AppendUint64(b, uint64(p.sent))
}

func parseProbe(b []byte) probe {
	return probe{
		controller: be.Uint64(b),
		from:       topology.PortRef{Switch: openflow.DatapathID(be.Uint64(b[8:])), Port: be.Uint32(b[16:])},
		seq:        be.Uint64(b[20:]),
		sent:       time.Duration(be.Uint64(b[28:])),
	}
}

// The labels make the hashes of link probes and loop probes differ from each other, and from any
// other use of the key.
const (
	linkLabel = "sluice link probe 1\x00"
	loopLabel = "sluice loop probe 1\x00"
)

// hash authenticates a body.
func hash(key []byte, label string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(label))
	h.Write(body)
	return h.Sum(nil)[:hashSize]
}

// appendFrame appends the LLDP frame of a probe. The standard TLVs are for people who capture
// packets; the controller reads the last one only.
func appendFrame(b []byte, mac openflow.MAC, p probe, key []byte, ttl time.Duration) []byte {
	b = append(b, Multicast[:]...)
	b = append(b, mac[:]...)
	b = be.AppendUint16(b, packet.TypeLLDP)
	b = appendTLV(b, tlvChassis, append([]byte{subtypeLocal}, p.from.Switch.String()...))
	b = appendTLV(b, tlvPort, strconv.AppendUint([]byte{subtypeLocal}, uint64(p.from.Port), 10))
	b = appendTLV(b, tlvTTL, be.AppendUint16(nil, uint16(min(ttl/time.Second+1, 65535))))
	body := p.append(nil)
	org := append([]byte(oui), subtype)
	org = append(org, body...)
	b = appendTLV(b, tlvOrg, append(org, hash(key, linkLabel, body)...))
	return appendTLV(b, tlvEnd, nil)
}

func appendTLV(b []byte, kind uint8, value []byte) []byte {
	b = be.AppendUint16(b, uint16(kind)<<9|uint16(len(value)))
	return append(b, value...)
}

// Reasons why a frame is refused.
var (
	// ErrForeign means LLDP of another sender, which is harmless.
	ErrForeign = errors.New("discovery: not a probe of this controller")
	// ErrMalformed means LLDP whose lengths are inconsistent.
	ErrMalformed = errors.New("discovery: malformed LLDP")
	// ErrForged means a probe whose hash is wrong.
	ErrForged = errors.New("discovery: forged probe")
	// ErrReplayed means a probe that was received before, or that is late at a port without a
	// link: a recorded probe.
	ErrReplayed = errors.New("discovery: replayed probe")
	// ErrLate means a probe that was in flight for too long, or was overtaken by a later one,
	// because the link is full or the machine busy. Such a probe shows nothing about the link.
	ErrLate = errors.New("discovery: late probe")
	// ErrGuarded means an authentic probe through a port that Options.Guard refuses.
	ErrGuarded = errors.New("discovery: probe through a port kept for hosts")
)

// findBody returns body and hash of the probe in an LLDP frame's payload.
func findBody(p []byte) (body, sum []byte, err error) {
	for at := 0; ; {
		if len(p)-at < 2 {
			return nil, nil, fmt.Errorf("%w: ends without an end TLV", ErrMalformed)
		}
		head := be.Uint16(p[at:])
		kind, size := head>>9, int(head&0x1ff)
		if size > len(p)-at-2 {
			return nil, nil, fmt.Errorf("%w: TLV of type %d at byte %d has length %d, %d bytes are left", ErrMalformed, kind, at, size, len(p)-at-2)
		}
		v := p[at+2 : at+2+size]
		switch {
		case kind == tlvEnd:
			return nil, nil, ErrForeign
		case kind == tlvOrg && size == len(oui)+1+bodySize+hashSize && string(v[:3]) == oui && v[3] == subtype:
			return v[4 : 4+bodySize], v[4+bodySize:], nil
		}
		at += 2 + size
	}
}
