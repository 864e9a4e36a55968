package content

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"sync/atomic"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// NearestKey returns a key that everybody knows. Caches for all hosts nearby attach its name, and
// the network leads requests to the nearest. The cache need not be trusted: contents are verified
// by their names, and a cache that does not answer is passed over. It does see who gets what.
func NearestKey() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("sluice: whoever keeps contents for those nearby, 1"))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Nearest returns the name of NearestKey. It can only be used on a host's own links.
func Nearest() frame.GUID { return record.NameOfOwner(NearestKey()) }

// sourceNames lists the names from which a content is requested. If one does not answer, the next
// is used.
type sourceNames struct {
	names   []frame.GUID
	current atomic.Int32
}

// tryNames requests a piece from each name in turn until it passes the check. late reports whether
// the first attempt has failed.
func (p *Peer) tryNames(ctx context.Context, by *sourceNames, content frame.GUID, piece uint32, check func([]byte) error) (b []byte, late bool, err error) {
	for {
		now := by.current.Load()
		last, attempts := int(now) == len(by.names)-1, 1
		if last {
			attempts = maxAttempts
		}
		b, again, err := p.tryName(ctx, by.names[now], content, piece, attempts, check)
		if err == nil || last || ctx.Err() != nil || errors.Is(err, hostapi.ErrClosed) {
			return b, late || again, err
		}
		late = true
		by.current.CompareAndSwap(now, now+1)
	}
}
