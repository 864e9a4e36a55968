package host

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// Any host can send a datagram with another's source address. So a host accepts chunks from far
// hosts only in streams whose numbers it has received together with a token, which it had sent to
// that address before.

// tokenLifetime is the minimum validity of a token; it is valid for up to twice as long.
const tokenLifetime = time.Minute

// token returns the token that a requester at a place has to return. The host stores no tokens: it
// computes the token again to check the one that is returned.
func (h *Host) token(at place, from, to frame.GUID, now time.Time) uint64 {
	mac := hmac.New(sha256.New, h.secret[:])
	mac.Write(at.mac[:])
	mac.Write(from[:])
	mac.Write(to[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(now.UnixNano()/int64(tokenLifetime))))
	return max(binary.BigEndian.Uint64(mac.Sum(nil)), 1)
}

// handleConfirm records that a far name receives frames at its address. A repeated confirmation
// changes nothing.
func (h *Host) handleConfirm(at place, c *frame.PathConfirm, now time.Time) {
	n := h.neighbours.find(c.Source, at)
	if !at.link.isFar() || n == nil || h.names[c.Destination] == nil {
		return
	}
	if c.Token == h.token(at, c.Source, c.Destination, now) || c.Token == h.token(at, c.Source, c.Destination, now.Add(-tokenLifetime)) {
		n.session(c.Destination, c.Stream.Session(), now).confirmed = true
	}
}

// hasConfirmed reports whether chunks may be received in a session to a name.
func (n *neighbour) hasConfirmed(to frame.GUID, number uint64) bool {
	return slices.ContainsFunc(n.sessions, func(s *session) bool { return s.to == to && s.number == number && s.confirmed })
}
