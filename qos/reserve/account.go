package reserve

// account is what stands in the book for one link, added up: a search of a path asks
// every link what it has left, and there may be thousands of promises.
type account struct {
	entries map[Key]*entry
	young   map[Key]newcomer
	sums    sums
	// opened is the beginning of the window that is being measured, nil before the first.
	opened   *opened
	measured window
}

// newcomer is a promise whose traffic is not known yet, on a link.
type newcomer struct {
	unseen uint64 // the part of its rate that is not counted as its use
	shown  uint64 // the link's use when the promise was made, with what is counted since
	more   uint64 // what it may carry beyond the most that has been seen of it
}

// sums are what promises add up to on a link, in bits per second.
type sums struct {
	// promised is their rates; counted the part of the link's use that is taken for
	// theirs, as what yields to them; seen the most that may be theirs; excess what they
	// are known to carry beyond what is promised; open what of their rates no queue enforces.
	promised, counted, seen, excess, open uint64
}

func (s sums) plus(o sums) sums {
	return sums{s.promised + o.promised, s.counted + o.counted, s.seen + o.seen, s.excess + o.excess, s.open + o.open}
}

func (s sums) minus(o sums) sums {
	return sums{s.promised - o.promised, s.counted - o.counted, s.seen - o.seen, s.excess - o.excess, s.open - o.open}
}

// on is what a promise adds on a link.
func (e *entry) on(l Link) sums {
	s := sums{promised: e.rates[l], counted: e.own(l), seen: e.most(l), excess: e.excess(l)}
	if s.promised == 0 {
		s.counted = s.seen
	}
	if !e.promise.Enforced {
		s.open = s.promised
	}
	return s
}

func newAccount() *account { return &account{entries: map[Key]*entry{}, young: map[Key]newcomer{}} }

func (a *account) enter(l Link, e *entry) {
	a.entries[e.promise.Key] = e
	on := e.on(l)
	a.sums = a.sums.plus(on)
	if e.seen.young() && on.promised > 0 {
		a.young[e.promise.Key] = newcomer{
			unseen: on.promised - on.counted, shown: e.before[l] + on.counted, more: max(on.seen, on.promised) - on.seen,
		}
	}
}

// leave takes a promise out and reports whether none is left.
func (a *account) leave(l Link, e *entry) bool {
	a.sums = a.sums.minus(e.on(l))
	delete(a.entries, e.promise.Key)
	delete(a.young, e.promise.Key)
	return len(a.entries) == 0
}

// promised is what is promised to others than some.
func (a *account) promised(l Link, except ...Key) uint64 {
	promised := a.sums.promised
	for _, k := range except {
		if e := a.entries[k]; e != nil {
			promised -= e.rates[l]
		}
	}
	return promised
}
