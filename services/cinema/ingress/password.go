package ingress

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

const (
	// maxComparisons bounds the concurrent comparisons of passwords; each occupies a processor
	// for tens of milliseconds.
	maxComparisons = 2
	// compareWait bounds the wait for a comparison to start.
	compareWait = 3 * time.Second
	// maxPassword is the longest password that bcrypt accepts, in bytes.
	maxPassword = 72
	// maxWrongPerSource and maxWrongTotal bound the wrong passwords of one source and of all
	// sources within wrongWindow. Further passwords are refused without a comparison. When
	// maxWrongTotal is reached, passwords that were right before are still accepted, because
	// otherwise a few attackers could lock out all producers. When a source has reached
	// maxWrongPerSource, they are refused too, because otherwise the source could go on guessing.
	maxWrongPerSource, maxWrongTotal = 5, 100
	wrongWindow                      = 10 * time.Second
	// maxSources bounds the sources that are remembered.
	maxSources = 4096
)

var (
	errWrongPassword = errors.New("wrong password")
	errTooManyWrong  = errors.New("too many wrong passwords; try again in 10 s")
	errBusy          = errors.New("too many passwords are being compared; try again")
)

// passwordChecker compares passwords at a limited rate. It is safe for concurrent use.
type passwordChecker struct {
	slots    chan struct{}
	accepted *gatewayapi.PasswordCache

	mu       sync.Mutex
	bySource map[netip.Prefix]*attempts
	all      attempts
}

// attempts counts attempts within a window. An attempt counts as wrong until it turns out to be
// right.
type attempts struct {
	since time.Time
	n     int
}

func newPasswordChecker() *passwordChecker {
	return &passwordChecker{slots: make(chan struct{}, maxComparisons), accepted: gatewayapi.NewPasswordCache(), bySource: map[netip.Prefix]*attempts{}}
}

// check returns an error unless the password that a source has sent matches the hash.
func (p *passwordChecker) check(ctx context.Context, source netip.Prefix, hash, password string) error {
	known := p.accepted.Contains(hash, password)
	if !p.allowAttempt(source, known, time.Now()) {
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
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		p.forgive(source)
		return errBusy
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password))
	<-p.slots
	if err != nil {
		return errWrongPassword
	}
	p.accepted.Add(hash, password)
	p.forgive(source)
	return nil
}

// allowAttempt counts an attempt, and reports whether it is permitted. known reports whether the
// password is known to be right; such an attempt is not counted.
func (p *passwordChecker) allowAttempt(source netip.Prefix, known bool, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.bySource[source]
	if a == nil && known {
		return true
	}
	if a == nil {
		if p.all.exhausted(now, maxWrongTotal) {
			return false
		}
		if len(p.bySource) >= maxSources {
			p.sweep(now)
		}
		if len(p.bySource) >= maxSources {
			return false
		}
		a = &attempts{}
		p.bySource[source] = a
	}
	if a.exhausted(now, maxWrongPerSource) {
		return false
	}
	if known {
		return true
	}
	if p.all.exhausted(now, maxWrongTotal) {
		return false
	}
	a.n++
	p.all.n++
	return true
}

// exhausted reports whether the attempts have reached a bound. It starts a new window when the
// last one is over.
func (a *attempts) exhausted(now time.Time, most int) bool {
	if now.Sub(a.since) >= wrongWindow {
		a.since, a.n = now, 0
	}
	return a.n >= most
}

// forgive removes an attempt of a source from the counts, because it was not wrong.
func (p *passwordChecker) forgive(source netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.bySource[source]; a != nil {
		a.n = max(a.n-1, 0)
	}
	p.all.n = max(p.all.n-1, 0)
}

// sweep removes sources whose window is over. p.mu is held.
func (p *passwordChecker) sweep(now time.Time) {
	for source, a := range p.bySource {
		if now.Sub(a.since) >= wrongWindow {
			delete(p.bySource, source)
		}
	}
}
