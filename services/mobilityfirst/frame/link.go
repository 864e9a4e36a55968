package frame

// Probe asks the other end of a link to answer, or is the answer. Half of the time between a probe
// and its answer is the link's expected transmission time. The ends are identified by the low 32
// bits of their names.
type Probe struct {
	Source, Destination uint32
	// Sequence is the probe's number, which its answer repeats.
	Sequence uint32
	// Ack is set in the answer.
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
	return appendUint32s(b, uint32(p.Type()), p.Source, p.Destination, p.Sequence)
}

func (p *Probe) parse(b []byte) error { return readUint32s(b, &p.Source, &p.Destination, &p.Sequence) }

// LSA is a link-state advertisement: it reports a router's links.
type LSA struct {
	// Sender is the router that sends this copy, and Source the one that wrote it.
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
	b = appendUint32s(b, uint32(TypeLSA), l.Sender, l.Source, l.Destination, l.Sequence, uint32(len(l.Neighbours)))
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
	if err := readUint32s(b, &l.Sender, &l.Source, &l.Destination, &l.Sequence, &n); err != nil {
		return err
	}
	const figures = 3 // per neighbour, of four bytes each
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

// Associate attaches a client to an access point.
type Associate struct {
	Client, Host uint32
	// Weight is the client's preference for the access point.
	Weight uint16
}

// Type implements Frame.
func (*Associate) Type() Type { return TypeAssociate }

// AppendTo implements Frame.
func (a *Associate) AppendTo(b []byte) []byte {
	return be.AppendUint16(appendUint32s(b, uint32(TypeAssociate), a.Client, a.Host), a.Weight)
}

func (a *Associate) parse(b []byte) error {
	if len(b) < 10 {
		return ErrShort
	}
	a.Weight = be.Uint16(b[8:])
	return readUint32s(b, &a.Client, &a.Host)
}

// Deassociate detaches a client, Entity, from an access point, Host.
type Deassociate struct{ Entity, Host uint32 }

// Type implements Frame.
func (*Deassociate) Type() Type { return TypeDeassociate }

// AppendTo implements Frame.
func (d *Deassociate) AppendTo(b []byte) []byte {
	return appendUint32s(b, uint32(TypeDeassociate), d.Entity, d.Host)
}

func (d *Deassociate) parse(b []byte) error { return readUint32s(b, &d.Entity, &d.Host) }
