package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/sluice-net/sluice/internal/packetsocket"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/openflow"
)

// Errors of a client.
var (
	// ErrSilence means that no server answered.
	ErrSilence = errors.New("no DHCP server answers")
	// ErrRefused means that the server has refused the address (DHCPNAK).
	ErrRefused = errors.New("the DHCP server refuses the address")
	// ErrExpired means that the lease ended before a server extended it.
	ErrExpired = errors.New("the lease has expired")
)

// Conn is an interface on which the client sends and receives. *packetsocket.Socket implements it.
type Conn interface {
	Send(frame []byte) error
	Receive(ctx context.Context) (packetsocket.Frame, error)
}

// Port is a connection with the source address of its frames.
type Port struct {
	Conn
	MAC openflow.MAC
}

// Config is the configuration of a client.
type Config struct {
	// MAC is the MAC address of the virtual interface, which is chaddr in all messages.
	MAC openflow.MAC
	// HostName is sent unless it is empty.
	HostName string
	// Sign adds the device's signature to a message that will be sent with the Ethernet source src.
	// Nil means that the device has no key.
	Sign func(m *dhcpv4.DHCPv4, src openflow.MAC, now time.Time) error
	// Retransmit is the wait before the first retransmission; it doubles up to RetransmitMax. Zero
	// means 100 ms and 4 s. The first wait is short because the network of a device that has lost
	// its link answers in milliseconds, and waiting longer extends the gap.
	Retransmit, RetransmitMax time.Duration
	// RebootTries is how often a known address is requested before the client starts over. Zero
	// means 4.
	RebootTries int
	// Log receives messages for operators; nil discards them.
	Log *slog.Logger
}

// Client gets and extends leases.
type Client struct{ cfg Config }

// New returns a client.
func New(c Config) *Client {
	if c.Retransmit <= 0 {
		c.Retransmit = 100 * time.Millisecond
	}
	if c.RetransmitMax < c.Retransmit {
		c.RetransmitMax = max(4*time.Second, c.Retransmit)
	}
	if c.RebootTries <= 0 {
		c.RebootTries = 4
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{cfg: c}
}

// Attach gets a lease on an interface: the known lease if the server confirms it, otherwise one that the
// server offers. Without a known lease, or if no server confirms it, Attach asks until ctx ends.
func (c *Client) Attach(ctx context.Context, p Port, known *Lease) (Lease, error) {
	if known.Valid(time.Now()) {
		l, err := c.reboot(ctx, p, known)
		if err == nil || !errors.Is(err, ErrRefused) && !errors.Is(err, ErrSilence) {
			return l, err
		}
		c.cfg.Log.Info("the known address is not confirmed", "address", known.Address.Addr(), "error", err)
	}
	for {
		l, err := c.discover(ctx, p, known)
		if err == nil || !errors.Is(err, ErrRefused) {
			return l, err
		}
		c.cfg.Log.Info("the offered address is refused", "error", err)
		if err := tasks.Sleep(ctx, c.cfg.Retransmit); err != nil {
			return Lease{}, err
		}
	}
}

// reboot requests the known address (state INIT-REBOOT).
func (c *Client) reboot(ctx context.Context, p Port, known *Lease) (Lease, error) {
	x := c.begin(dhcpv4.MessageTypeRequest)
	x.options = []dhcpv4.Option{dhcpv4.OptRequestedIPAddress(known.Address.Addr().AsSlice())}
	x.tries = c.cfg.RebootTries
	return c.request(ctx, p, x)
}

// discover asks for any address and takes the first offer.
func (c *Client) discover(ctx context.Context, p Port, known *Lease) (Lease, error) {
	x := c.begin(dhcpv4.MessageTypeDiscover)
	if known != nil && known.Address.IsValid() {
		x.options = []dhcpv4.Option{dhcpv4.OptRequestedIPAddress(known.Address.Addr().AsSlice())}
	}
	offer, err := c.exchange(ctx, p, x, dhcpv4.MessageTypeOffer)
	if err != nil {
		return Lease{}, err
	}
	address, _ := toAddr(offer.Message.YourIPAddr)
	server, ok := toAddr(offer.Message.ServerIdentifier())
	if !ok || !address.IsValid() {
		return Lease{}, fmt.Errorf("%w: an offer of %v by %v", ErrRefused, address, server)
	}
	r := c.begin(dhcpv4.MessageTypeRequest)
	r.xid = x.xid // the server may identify its offer by the transaction's number
	r.started = x.started
	r.options = []dhcpv4.Option{
		dhcpv4.OptRequestedIPAddress(address.AsSlice()),
		dhcpv4.OptServerIdentifier(server.AsSlice()),
	}
	r.tries = c.cfg.RebootTries
	l, err := c.request(ctx, p, r)
	if errors.Is(err, ErrSilence) {
		err = fmt.Errorf("%w: %w after its offer", ErrRefused, err)
	}
	return l, err
}

// request exchanges a REQUEST for a lease.
func (c *Client) request(ctx context.Context, p Port, x exchange) (Lease, error) {
	r, err := c.exchange(ctx, p, x, dhcpv4.MessageTypeAck, dhcpv4.MessageTypeNak)
	if err != nil {
		return Lease{}, err
	}
	if r.Message.MessageType() == dhcpv4.MessageTypeNak {
		return Lease{}, fmt.Errorf("%w: %q", ErrRefused, r.Message.Message())
	}
	// The lease starts when it was requested: the server cannot have granted it earlier.
	return fromACK(r.Message, r.From, x.started)
}

// Extend waits until the lease has to be renewed and returns the new lease. After ErrExpired or
// ErrRefused the address must not be used.
func (c *Client) Extend(ctx context.Context, p Port, l Lease) (Lease, error) {
	if err := tasks.Sleep(ctx, time.Until(l.Renew)); err != nil {
		return Lease{}, err
	}
	for {
		now := time.Now()
		if !now.Before(l.Expires) {
			return Lease{}, ErrExpired
		}
		rebinding := !now.Before(l.Rebind)
		next := l.Rebind
		if rebinding {
			next = l.Expires
		}
		x := c.begin(dhcpv4.MessageTypeRequest)
		x.client = l.Address.Addr()
		if !rebinding {
			x.server, x.serverMAC = l.Server, l.ServerMAC
		}
		x.tries, x.wait = 1, retryAfter(next.Sub(now), l.Expires.Sub(l.Granted))
		renewed, err := c.request(ctx, p, x)
		switch {
		case err == nil, errors.Is(err, ErrRefused), ctx.Err() != nil:
			return renewed, err
		case errors.Is(err, ErrSilence):
			c.cfg.Log.Warn("the lease is not renewed", "address", l.Address.Addr(), "rebinding", rebinding, "expires", l.Expires)
		default:
			c.cfg.Log.Warn("the lease is not renewed", "address", l.Address.Addr(), "error", err)
			if err := tasks.Sleep(ctx, min(x.wait, time.Until(next))); err != nil {
				return Lease{}, err
			}
		}
	}
}

// retryAfter returns how long to wait for an answer before the request is repeated: half of the
// remaining time rest, as in RFC 2131, but at least a minute, or a sixteenth of a short lease. whole is
// the whole time of the lease.
func retryAfter(rest, whole time.Duration) time.Duration {
	return min(max(rest/2, min(time.Minute, whole/16)), rest)
}

// Release releases the lease. There is no answer.
func (c *Client) Release(p Port, l Lease) error {
	x := c.begin(dhcpv4.MessageTypeRelease)
	x.client, x.server, x.serverMAC = l.Address.Addr(), l.Server, l.ServerMAC
	x.options = []dhcpv4.Option{dhcpv4.OptServerIdentifier(l.Server.AsSlice())}
	f, err := c.frame(x, p.MAC, 0)
	if err != nil {
		return err
	}
	return p.Send(f)
}

// jitter varies a wait by up to a tenth either way, so that devices which lost their network
// at the same time do not all ask at the same time.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}
