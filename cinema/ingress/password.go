package ingress

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
)

const (
	// comparisons is how many passwords are compared at once; a comparison takes a
	// processor for tens of milliseconds.
	comparisons = 2
	// compareWait is how long one waits for its turn.
	compareWait = 3 * time.Second
	// maxPassword is what bcrypt takes, in bytes.
	maxPassword = 72
	// wrongOnes are how many wrong passwords a source has in wrongTime, and allWrongOnes
	// all sources have, before more are refused without a comparison. Those that are known to
	// be right pass when all have had too many, or a few who guess would keep producers out;
	// they do not when their source has, or it could guess on.
	wrongOnes, allWrongOnes = 5, 100
	wrongTime               = 10 * time.Second
	// maxSources is how many sources are remembered.
	maxSources = 4096
)

var (
	errWrongPassword = errors.New("wrong password")
	errTooManyWrong  = errors.New("too many wrong passwords; try again in 10 s")
	errBusy          = errors.New("too many passwords are being compared; try again")
)

// passwords compares passwords, and not too many. It is safe for concurrent use.
type passwords struct {
	places chan struct{}
	right  *gatewayapi.RightPasswords

	mu    sync.Mutex
	wrong map[netip.Prefix]*attempts
	all   attempts
}

// attempts are those of a while, which are taken for wrong ones until they have turned out
// right.
type attempts struct {
	since time.Time
	n     int
}

func newPasswords() *passwords {
	return &passwords{places: make(chan struct{}, comparisons), right: gatewayapi.NewRightPasswords(), wrong: map[netip.Prefix]*attempts{}}
}

// check says whether a password from a source is that of a hash.
func (p *passwords) check(ctx context.Context, source netip.Prefix, hash, password string) error {
	known := p.right.Known(hash, password)
	if !p.begin(source, known, time.Now()) {
		return errTooManyWrong
	}
	if known {
		return nil
	}
	if password == "" || len(password) > maxPassword {
		return errWrongPassword
	}
	ctx, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		p.forgive(source)
		return errBusy
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password))
	<-p.places
	if err != nil {
		return errWrongPassword
	}
	p.right.Remember(hash, password)
	p.forgive(source)
	return nil
}

// begin counts an attempt with a password that is not known, if there may be one more.
func (p *passwords) begin(source netip.Prefix, known bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.wrong[source]
	if a == nil && known {
		return true
	}
	if a == nil {
		if p.all.full(now, allWrongOnes) {
			return false
		}
		if len(p.wrong) >= maxSources {
			p.sweep(now)
		}
		if len(p.wrong) >= maxSources {
			return false
		}
		a = &attempts{}
		p.wrong[source] = a
	}
	if a.full(now, wrongOnes) {
		return false
	}
	if known {
		return true
	}
	if p.all.full(now, allWrongOnes) {
		return false
	}
	a.n++
	p.all.n++
	return true
}

// full says whether there have been so many, and begins anew when their while is over.
func (a *attempts) full(now time.Time, most int) bool {
	if now.Sub(a.since) >= wrongTime {
		a.since, a.n = now, 0
	}
	return a.n >= most
}

// forgive takes an attempt back.
func (p *passwords) forgive(source netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.wrong[source]; a != nil {
		a.n = max(a.n-1, 0)
	}
	p.all.n = max(p.all.n-1, 0)
}

// sweep forgets sources whose while is over.
func (p *passwords) sweep(now time.Time) {
	for source, a := range p.wrong {
		if now.Sub(a.since) >= wrongTime {
			delete(p.wrong, source)
		}
	}
}
