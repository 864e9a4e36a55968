package frame

// Probe asks whoever is at the other end of a link to answer, or is the answer: half of the time
// between is the link's expected transmission time. Ends are told by the low bits of their names.
type Probe struct {
	Source, Destination uint32
	// Sequence is the probe's number, which its answer repeats.
	Sequence uint32
	// Ack says that it is the answer.
	Ack bool
}

// Type implements Frame.
func (p *Probe) Type() Type {
	if p.Ack {
		return TypeProbeAck
	}
	return TypeProbe
}

// AppendTo implements Frame.
func (p *Probe) AppendTo(b []byte) []byte {
	return appendWords(b, uint32(p.Type()), p.Source, p.Destination, p.Sequence)
}

func (p *Probe) parse(b []byte) error { return words(b, &p.Source, &p.Destination, &p.Sequence) }

// LSA tells what a router knows of its links.
type LSA struct {
	// Sender is who sends this copy, Source who has written it.
	Sender, Source, Destination uint32
	Sequence                    uint32
	Neighbours                  []Neighbour
}

// Neighbour is the other end of a link in an LSA, with the link's expected transmission times.
type Neighbour struct{ ShortTerm, LongTerm, ID uint32 }

// Type implements Frame.
func (*LSA) Type() Type { return TypeLSA }

// AppendTo implements Frame.
func (l *LSA) AppendTo(b []byte) []byte {
	b = appendWords(b, uint32(TypeLSA), l.Sender, l.Source, l.Destination, l.Sequence, uint32(len(l.Neighbours)))
	for _, n := range l.Neighbours {
		b = be.AppendUint32(b, n.ShortTerm)
	}
	for _, n := range l.Neighbours {
		b = be.AppendUint32(b, n.LongTerm)
	}
	for _, n := range l.Neighbours {
		b = be.AppendUint32(b, n.ID)
	}
	return b
}

func (l *LSA) parse(b []byte) error {
	var n uint32
	if err := words(b, &l.Sender, &l.Source, &l.Destination, &l.Sequence, &n); err != nil {
		return err
	}
	const figures = 3 // of a neighbour, each of four bytes
	if b = b[20:]; int64(n)*figures*4 > int64(len(b)) {
		return ErrShort
	}
	at := func(i int) uint32 { return be.Uint32(b[4*i:]) }
	l.Neighbours = make([]Neighbour, n)
	for i := range l.Neighbours {
		l.Neighbours[i] = Neighbour{at(i), at(int(n) + i), at(2*int(n) + i)}
	}
	return nil
}

// Associate ties a client to a point of attachment.
type Associate struct {
	Client, Host uint32
	// Weight is how much the client prefers it.
	Weight uint16
}

// Type implements Frame.
func (*Associate) Type() Type { return TypeAssociate }

// AppendTo implements Frame.
func (a *Associate) AppendTo(b []byte) []byte {
	return be.AppendUint16(appendWords(b, uint32(TypeAssociate), a.Client, a.Host), a.Weight)
}

func (a *Associate) parse(b []byte) error {
	if len(b) < 10 {
		return ErrShort
	}
	a.Weight = be.Uint16(b[8:])
	return words(b, &a.Client, &a.Host)
}

// Deassociate unties one from the other.
type Deassociate struct{ Entity, Host uint32 }

// Type implements Frame.
func (*Deassociate) Type() Type { return TypeDeassociate }

// AppendTo implements Frame.
func (d *Deassociate) AppendTo(b []byte) []byte {
	return appendWords(b, uint32(TypeDeassociate), d.Entity, d.Host)
}

func (d *Deassociate) parse(b []byte) error { return words(b, &d.Entity, &d.Host) }
