package reserve

// account holds the promises on one link and their sums. The sums are kept because a search for a
// path asks every link for its available capacity, and there may be thousands of promises.
type account struct {
	entries    map[Key]*entry
	unmeasured map[Key]unmeasuredPromise
	sums       sums
	// start is the start of the current measuring window; nil before the first window.
	start    *windowStart
	measured window
}

// unmeasuredPromise is a promise on a link where measurements do not show its traffic yet. All
// rates are in bits per second.
type unmeasuredPromise struct {
	unseen uint64 // the part of its rate that is not counted in the link's use
	shown  uint64 // the link's use when the promise was made, plus the part counted since
	more   uint64 // the rate that it may have beyond the most that has been seen of it
}

// sums holds sums over the promises on a link, in bits per second.
type sums struct {
	// promised is the sum of the promises' rates. counted is the part of the link's use that is
	// attributed to them, including that of yielding traffic. seen is the most that may be
	// attributed to them. excess is the traffic that they are known to have beyond their promises.
	// open is the sum of the rates that no queue enforces.
	promised, counted, seen, excess, open uint64
}

func (s sums) plus(o sums) sums {
	return sums{s.promised + o.promised, s.counted + o.counted, s.seen + o.seen, s.excess + o.excess, s.open + o.open}
}

func (s sums) minus(o sums) sums {
	return sums{s.promised - o.promised, s.counted - o.counted, s.seen - o.seen, s.excess - o.excess, s.open - o.open}
}

// sumsOn returns what a promise adds to the sums of a link.
func (e *entry) sumsOn(l Link) sums {
	s := sums{promised: e.rates[l], counted: e.countedRate(l), seen: e.maxSeen(l), excess: e.excess(l)}
	if s.promised == 0 {
		s.counted = s.seen
	}
	if !e.promise.Enforced {
		s.open = s.promised
	}
	return s
}

func newAccount() *account {
	return &account{entries: map[Key]*entry{}, unmeasured: map[Key]unmeasuredPromise{}}
}

func (a *account) enter(l Link, e *entry) {
	a.entries[e.promise.Key] = e
	on := e.sumsOn(l)
	a.sums = a.sums.plus(on)
	if e.history.tooShort() && on.promised > 0 {
		a.unmeasured[e.promise.Key] = unmeasuredPromise{
			unseen: on.promised - on.counted, shown: e.before[l] + on.counted, more: max(on.seen, on.promised) - on.seen,
		}
	}
}

// leave removes a promise from the account, and reports whether no other is left.
func (a *account) leave(l Link, e *entry) bool {
	a.sums = a.sums.minus(e.sumsOn(l))
	delete(a.entries, e.promise.Key)
	delete(a.unmeasured, e.promise.Key)
	return len(a.entries) == 0
}

// promised returns the rate promised on the link, without the promises in except.
func (a *account) promised(l Link, except ...Key) uint64 {
	promised := a.sums.promised
	for _, k := range except {
		if e := a.entries[k]; e != nil {
			promised -= e.rates[l]
		}
	}
	return promised
}
