package lab

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/lab/delayline"
)

// LiveLink is a link of a lab that is up.
type LiveLink struct {
	lab  *Lab
	name string
}

// Link returns a link by its name. It panics if the topology has no such link: that is a bug of the
// caller, as with an index out of range.
func (l *Lab) Link(name string) *LiveLink {
	if _, err := l.wire(name); err != nil {
		panic(err)
	}
	return &LiveLink{lab: l, name: name}
}

// wire returns the link as it is now.
func (k *LiveLink) wire() wire {
	w, _ := k.lab.wire(k.name) // Links may move but are never removed.
	return w
}

// Attachment returns the switch and the port at which a host's link ends now.
func (k *LiveLink) Attachment() (name string, port int) {
	f := k.wire().switchEnd()
	return f.Node, f.Port
}

// ErrNotShaped is returned for a plain cable by operations that only shaped links support.
var ErrNotShaped = errors.New("the link is a plain cable: give it rate, delay or loss in the topology, or shaped: true")

func (k *LiveLink) inDelayLine() bool {
	return k.wire().Link.shaped() && k.lab.shaper == ShapingDelayLine
}

// Stats returns the link's parameters and counters. Only links in the delay line
// have them.
func (k *LiveLink) Stats(ctx context.Context) (delayline.LinkState, error) {
	if !k.inDelayLine() {
		return delayline.LinkState{}, fmt.Errorf("link %s: %w", k.name, ErrNotShaped)
	}
	all, err := k.lab.delayLine().State(ctx)
	if err != nil {
		return delayline.LinkState{}, fmt.Errorf("link %s: %w", k.name, err)
	}
	return all[k.name], nil
}

// Set changes the link's properties while it carries traffic; nil leaves a
// direction as it is.
func (k *LiveLink) Set(ctx context.Context, aToB, bToA *delayline.Params) error {
	switch {
	case !k.wire().Link.shaped():
		return fmt.Errorf("link %s: %w", k.name, ErrNotShaped)
	case k.inDelayLine():
		if err := k.lab.delayLine().Set(ctx, k.name, aToB, bToA); err != nil {
			return fmt.Errorf("link %s: %w", k.name, err)
		}
		return nil
	}
	return k.setNetem(aToB, bToA)
}

func (k *LiveLink) setNetem(aToB, bToA *delayline.Params) error {
	w := k.wire()
	if aToB != nil {
		w.Link.AtoB = *aToB
	}
	if bToA != nil {
		w.Link.BtoA = *bToA
	}
	if err := errors.Join(w.Link.AtoB.Validate(), w.Link.BtoA.Validate()); err != nil {
		return fmt.Errorf("link %s: %w", w.Link.Name, err)
	}
	return shapeWithNetem(w)
}

// SetUp plugs in or unplugs the link's cable. Both ends lose or get their carrier; addresses and
// routes stay.
func (k *LiveLink) SetUp(ctx context.Context, up bool) error {
	if k.inDelayLine() {
		if err := k.lab.delayLine().SetUp(ctx, k.name, up); err != nil {
			return fmt.Errorf("link %s: %w", k.name, err)
		}
		return nil
	}
	f := k.wire().cableEnd()
	err := inNamespace(f.Namespace, func() error { return setInterfaceUp(f.Name, up) })
	if err == nil && up && k.lab.plan.Topology.hostIndex(f.Node) >= 0 {
		err = k.lab.Host(f.Node).restoreRoutes()
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", k.name, err)
	}
	return nil
}

// cableUp reports whether a link's cable is plugged in. It always reports true for a link in the
// delay line, because the ends of such a link are always up and the line itself is the cable.
func (w wire) cableUp() (bool, error) {
	f, up := w.cableEnd(), false
	err := inNamespace(f.Namespace, func() error {
		link, err := netlink.LinkByName(f.Name)
		if err == nil {
			up = link.Attrs().Flags&net.FlagUp != 0
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("interface %s of %s: %w", f.Name, f.Node, err)
	}
	return up, nil
}

func setInterfaceUp(name string, up bool) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(link)
	}
	return netlink.LinkSetDown(link)
}

// SetLink plugs in or unplugs a link's cable.
func (l *Lab) SetLink(ctx context.Context, link string, up bool) error {
	if _, err := l.wire(link); err != nil {
		return err
	}
	return l.Link(link).SetUp(ctx, up)
}

// SetLinkParams gives a link the same properties in both directions.
func (l *Lab) SetLinkParams(ctx context.Context, link string, p delayline.Params) error {
	if _, err := l.wire(link); err != nil {
		return err
	}
	return l.Link(link).Set(ctx, &p, &p)
}

// SetLinkDirections sets the properties of a link's directions; nil leaves a direction as it is.
func (l *Lab) SetLinkDirections(ctx context.Context, link string, aToB, bToA *delayline.Params) error {
	if _, err := l.wire(link); err != nil {
		return err
	}
	if aToB == nil && bToA == nil {
		return nil
	}
	return l.Link(link).Set(ctx, aToB, bToA)
}

// ChangeLink calls edit with the present properties of a link, and sets what edit makes of them.
func (l *Lab) ChangeLink(ctx context.Context, link string, edit func(aToB, bToA *delayline.Params) error) error {
	w, err := l.wire(link)
	if err != nil {
		return err
	}
	aToB, bToA := w.Link.AtoB, w.Link.BtoA
	if k := l.Link(link); k.inDelayLine() {
		state, err := k.Stats(ctx)
		if err != nil {
			return err
		}
		aToB, bToA = state.AtoB.Params, state.BtoA.Params
	}
	if err := edit(&aToB, &bToA); err != nil {
		return err
	}
	return l.Link(link).Set(ctx, &aToB, &bToA)
}
