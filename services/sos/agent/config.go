package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos/agentapi"
	"github.com/sluice-net/sluice/services/sos/wire"
)

// Config is the configuration of an agent. A field with the zero value stands for its default,
// which DefaultConfig returns.
type Config struct {
	// Listen is the address of the control server. Without TLS only a loopback
	// address is permitted.
	Listen string `yaml:"listen"`
	// Cert, Key and CA are PEM files: the agent's certificate, its key, and the certificate of the
	// authority that has issued the certificates of the controller and the peers. The controller's
	// certificate must have the role controller, and those of peers the role agent.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`

	// Roles maps the holders of certificates that name no role to their roles.
	Roles pki.Mapping `yaml:"-" json:"-"`

	// DataAddr is the agent's address for connections with end hosts and peers. It must be a single
	// address, because the rules in the switches name it.
	DataAddr netip.Addr `yaml:"data_addr"`
	// SecondAddr is the data address of the other address family, for an agent that carries
	// connections of both families; otherwise it is the zero Addr.
	SecondAddr netip.Addr `yaml:"second_addr"`
	// DataPorts lists the ports on which the agent accepts peers, one for each path.
	DataPorts []uint16 `yaml:"data_ports"`

	// SessionPorts is the range of ports that the agent uses towards end hosts. Each session has
	// one, which is not used again for 20 s after the session. The switches drop packets from these
	// ports to end hosts unless they belong to a session. Therefore no other program may use these
	// ports, and the system must not assign them to other connections
	// (net.ipv4.ip_local_port_range).
	SessionPorts control.PortRange `yaml:"session_ports"`

	// MaxSessions bounds the number of sessions. The agent refuses further ones.
	MaxSessions int `yaml:"max_sessions"`
	// MaxUnauthenticated bounds the data connections that have not proved yet that they hold a
	// session's key. Connections from the addresses of sessions' peers are bounded separately, by
	// MaxSessions.
	MaxUnauthenticated int `yaml:"max_unauthenticated"`
	// MaxConnections bounds the connections of a session.
	MaxConnections int `yaml:"max_connections"`

	// Connections is the number of connections of a session (p). If it is 0, the agent chooses the
	// number, up to AutoConnections.
	Connections     int `yaml:"connections"`
	AutoConnections int `yaml:"auto_connections"`
	// ChunkBytes is the size of a chunk (c), in bytes.
	ChunkBytes int `yaml:"chunk_bytes"`
	// Queue is the number of chunks by which a connection may run ahead (q). A session holds at
	// most p*q*c bytes in each direction.
	Queue     int    `yaml:"queue"`
	Transport string `yaml:"transport"`
	// CongestionControl is the congestion control between agents. If it is empty, the agent chooses
	// cubic on local paths, and otherwise bbr if the kernel has it.
	CongestionControl string `yaml:"congestion_control"`

	// BufferBytes is the size of a data connection's socket buffers, in bytes.
	BufferBytes int `yaml:"buffer_bytes"`
	// NotSentLowat bounds the unsent bytes of a data connection. On a long path, a fast connection
	// may have more: the bytes that it sends within Lateness, which is the time by which the
	// agent's machine may be late.
	NotSentLowat int           `yaml:"notsent_lowat"`
	Lateness     time.Duration `yaml:"lateness"`
	// PipeBytes is the capacity of a pipe, in bytes.
	PipeBytes int `yaml:"pipe_bytes"`
	// Memory is the file in which the rates of paths are kept over restarts; if it is
	// empty, they are not kept.
	Memory string `yaml:"memory"`
	// InitialWindow is the initial credit, in bytes, of a session with a peer that the agent does
	// not know.
	InitialWindow int `yaml:"initial_window"`

	// WarmPerPeer and WarmTotal bound the number of idle connections that are kept for later
	// sessions. WarmIdle bounds the time for which they are kept; the last two to each port of a
	// peer are kept for ten times that long.
	WarmPerPeer int           `yaml:"warm_per_peer"`
	WarmTotal   int           `yaml:"warm_total"`
	WarmIdle    time.Duration `yaml:"warm_idle"`

	// DialTimeout is how long the server may take to answer.
	DialTimeout time.Duration `yaml:"dial_timeout"`
	// PrepareTimeout is the time after which a session ends if it is not committed, or if its
	// client does not connect.
	PrepareTimeout time.Duration `yaml:"prepare_timeout"`
	// OpeningTimeout is how long a peer may take to connect and to prove that it holds the
	// session's key.
	OpeningTimeout time.Duration `yaml:"opening_timeout"`
	// Beat is the interval of heartbeats on data connections. A connection that is silent for
	// ConnTimeout is lost, and opened again. A silent peer may be alive behind a path that is down;
	// TCP connections of end hosts survive that. The peer counts as lost when its machine refuses
	// connections, or after PeerTimeout.
	Beat        time.Duration `yaml:"beat"`
	ConnTimeout time.Duration `yaml:"conn_timeout"`
	PeerTimeout time.Duration `yaml:"peer_timeout"`
	// IdleTimeout is the time after which a session without payload ends.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// ResetDrain bounds how long a reset is delayed by bytes that were sent before it.
	ResetDrain time.Duration `yaml:"reset_drain"`
	// AutoInterval is the interval at which auto mode reconsiders the number of connections.
	AutoInterval time.Duration `yaml:"auto_interval"`
	// KeepAliveIdle, KeepAliveInterval and KeepAliveCount configure TCP keep-alive towards
	// end hosts.
	KeepAliveIdle     time.Duration `yaml:"keepalive_idle"`
	KeepAliveInterval time.Duration `yaml:"keepalive_interval"`
	KeepAliveCount    int           `yaml:"keepalive_count"`

	// Log receives the agent's messages; nil discards them.
	Log *slog.Logger `yaml:"-" json:"-"`
	// Version is the program's version for the status.
	Version string `yaml:"-" json:"-"`
	// TLS and DataTLS, if set, replace the configurations that are made from Cert, Key and CA. TLS
	// is that of the control server (pki.Server with RoleController), and DataTLS that of data
	// connections (function DataTLS).
	TLS     *tls.Config `yaml:"-" json:"-"`
	DataTLS *tls.Config `yaml:"-" json:"-"`
}

// DefaultConfig returns the defaults. DataAddr has no default.
func DefaultConfig() Config {
	return Config{
		Listen:             "127.0.0.1:8440",
		DataPorts:          []uint16{7444},
		SessionPorts:       control.PortRange{First: 10240, Last: 32767},
		MaxSessions:        4096,
		MaxUnauthenticated: 256,
		MaxConnections:     agentapi.MaxConnections,
		AutoConnections:    8,
		ChunkBytes:         256 << 10,
		Queue:              256,
		Transport:          "tcp",
		BufferBytes:        128 << 20,
		NotSentLowat:       256 << 10,
		Lateness:           50 * time.Millisecond,
		PipeBytes:          1 << 20,
		InitialWindow:      4 << 20,
		WarmPerPeer:        256,
		WarmTotal:          512,
		WarmIdle:           60 * time.Second,
		DialTimeout:        3 * time.Second,
		PrepareTimeout:     10 * time.Second,
		OpeningTimeout:     3 * time.Second,
		Beat:               500 * time.Millisecond,
		ConnTimeout:        2 * time.Second,
		PeerTimeout:        3 * time.Minute,
		IdleTimeout:        2 * time.Hour,
		ResetDrain:         time.Second,
		AutoInterval:       250 * time.Millisecond,
		KeepAliveIdle:      60 * time.Second,
		KeepAliveInterval:  10 * time.Second,
		KeepAliveCount:     6,
	}
}

// withDefaults returns c with zero fields set to their defaults.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if len(c.DataPorts) == 0 {
		c.DataPorts = d.DataPorts
	}
	c.Listen = orDefault(c.Listen, d.Listen)
	c.SessionPorts = orDefault(c.SessionPorts, d.SessionPorts)
	c.MaxSessions = orDefault(c.MaxSessions, d.MaxSessions)
	c.MaxUnauthenticated = orDefault(c.MaxUnauthenticated, d.MaxUnauthenticated)
	c.MaxConnections = orDefault(c.MaxConnections, d.MaxConnections)
	c.AutoConnections = orDefault(c.AutoConnections, d.AutoConnections)
	c.ChunkBytes = orDefault(c.ChunkBytes, d.ChunkBytes)
	c.Queue = orDefault(c.Queue, d.Queue)
	c.Transport = orDefault(c.Transport, d.Transport)
	c.BufferBytes = orDefault(c.BufferBytes, d.BufferBytes)
	c.NotSentLowat = orDefault(c.NotSentLowat, d.NotSentLowat)
	c.Lateness = orDefault(c.Lateness, d.Lateness)
	c.PipeBytes = orDefault(c.PipeBytes, d.PipeBytes)
	c.InitialWindow = orDefault(c.InitialWindow, d.InitialWindow)
	c.WarmPerPeer = orDefault(c.WarmPerPeer, d.WarmPerPeer)
	c.WarmTotal = orDefault(c.WarmTotal, d.WarmTotal)
	c.WarmIdle = orDefault(c.WarmIdle, d.WarmIdle)
	c.DialTimeout = orDefault(c.DialTimeout, d.DialTimeout)
	c.PrepareTimeout = orDefault(c.PrepareTimeout, d.PrepareTimeout)
	c.OpeningTimeout = orDefault(c.OpeningTimeout, d.OpeningTimeout)
	c.Beat = orDefault(c.Beat, d.Beat)
	c.ConnTimeout = orDefault(c.ConnTimeout, d.ConnTimeout)
	c.PeerTimeout = orDefault(c.PeerTimeout, d.PeerTimeout)
	c.IdleTimeout = orDefault(c.IdleTimeout, d.IdleTimeout)
	c.ResetDrain = orDefault(c.ResetDrain, d.ResetDrain)
	c.AutoInterval = orDefault(c.AutoInterval, d.AutoInterval)
	c.KeepAliveIdle = orDefault(c.KeepAliveIdle, d.KeepAliveIdle)
	c.KeepAliveInterval = orDefault(c.KeepAliveInterval, d.KeepAliveInterval)
	c.KeepAliveCount = orDefault(c.KeepAliveCount, d.KeepAliveCount)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// A FieldError names an invalid field of a Config, and describes the valid values.
type FieldError struct {
	Field string // name as in the configuration file
	Value any
	Want  string
}

// Error implements error.
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %v: want %s", e.Field, e.Value, e.Want) }

// Validate reports every invalid field, each as a *FieldError, in one joined error.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	wrong := func(field string, value any, want string) {
		errs = append(errs, &FieldError{Field: field, Value: value, Want: want})
	}
	within := func(field string, v, low, high int) {
		if v < low || v > high {
			wrong(field, v, fmt.Sprintf("%d to %d", low, high))
		}
	}
	at, err := netip.ParseAddrPort(c.Listen)
	switch {
	case err != nil:
		wrong("listen", c.Listen, "ADDRESS:PORT, such as 192.0.2.7:8440")
	case c.TLS == nil && c.Cert == "" && !at.Addr().IsLoopback():
		wrong("listen", c.Listen, "a loopback address, or cert, key and ca for TLS")
	}
	if some, all := c.Cert+c.Key+c.CA != "", c.Cert != "" && c.Key != "" && c.CA != ""; some && !all {
		wrong("cert", c.Cert, "cert, key and ca together")
	}
	if !c.DataAddr.IsValid() || c.DataAddr.IsUnspecified() || c.DataAddr.IsMulticast() || c.DataAddr.Zone() != "" {
		wrong("data_addr", c.DataAddr, "one address of this machine, without a zone")
	}
	if b := c.SecondAddr; b.IsValid() && (b.IsUnspecified() || b.IsMulticast() || b.Zone() != "" || b.Is4() == c.DataAddr.Is4()) {
		wrong("second_addr", b, "one address of this machine, of the other family than data_addr, without a zone")
	}
	for i, p := range c.DataPorts {
		if slices.Contains(c.DataPorts[:i], p) && p != 0 {
			wrong("data_ports", p, "different ports")
		}
	}
	within("data_ports", len(c.DataPorts), 1, 64)
	if r := c.SessionPorts; r.First == 0 || r.First > r.Last {
		wrong("session_ports", r, "a first and a last port, 1 to 65535")
	} else if i := slices.IndexFunc(c.DataPorts, func(p uint16) bool { return r.First <= p && p <= r.Last }); i >= 0 {
		wrong("session_ports", r, fmt.Sprintf("a range without the data port %d", c.DataPorts[i]))
	}
	within("max_sessions", c.MaxSessions, 1, 1<<20)
	within("max_unauthenticated", c.MaxUnauthenticated, 1, 1<<16)
	within("max_connections", c.MaxConnections, 1, agentapi.MaxConnections)
	within("connections", c.Connections, 0, c.MaxConnections)
	within("auto_connections", c.AutoConnections, 1, c.MaxConnections)
	within("chunk_bytes", c.ChunkBytes, 1<<10, wire.MaxChunk)
	within("queue", c.Queue, 1, 1<<16)
	within("buffer_bytes", c.BufferBytes, 64<<10, 1<<30)
	within("notsent_lowat", c.NotSentLowat, 16<<10, 1<<30)
	within("pipe_bytes", c.PipeBytes, 64<<10, 16<<20)
	within("initial_window", c.InitialWindow, 64<<10, 1<<30)
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"warm_idle", c.WarmIdle},
		{"dial_timeout", c.DialTimeout},
		{"prepare_timeout", c.PrepareTimeout},
		{"opening_timeout", c.OpeningTimeout},
		{"beat", c.Beat},
		{"lateness", c.Lateness},
		{"conn_timeout", c.ConnTimeout},
		{"peer_timeout", c.PeerTimeout},
		{"idle_timeout", c.IdleTimeout},
		{"reset_drain", c.ResetDrain},
		{"auto_interval", c.AutoInterval},
		{"keepalive_idle", c.KeepAliveIdle},
		{"keepalive_interval", c.KeepAliveInterval},
	} {
		if d.value < time.Millisecond || d.value > 7*24*time.Hour {
			wrong(d.field, d.value, "1ms to 168h")
		}
	}
	if c.ConnTimeout <= 2*c.Beat {
		wrong("conn_timeout", c.ConnTimeout, "more than two beats")
	}
	if c.CongestionControl != "" && !slices.Contains(congestionControls(), c.CongestionControl) {
		wrong("congestion_control", c.CongestionControl, fmt.Sprintf("one of %v", congestionControls()))
	}
	if c.Transport != "tcp" {
		wrong("transport", c.Transport, "tcp")
	}
	return errors.Join(errs...)
}

// addrs returns the agent's data addresses.
func (c *Config) addrs() []netip.Addr {
	if c.SecondAddr.IsValid() {
		return []netip.Addr{c.DataAddr, c.SecondAddr}
	}
	return []netip.Addr{c.DataAddr}
}

// addrFor returns the data address of the same family as other, or the zero Addr.
func (c *Config) addrFor(other netip.Addr) netip.Addr {
	for _, own := range c.addrs() {
		if own.Is4() == other.Is4() {
			return own
		}
	}
	return netip.Addr{}
}

// params returns p, in which unset parameters are taken from the configuration.
func (c *Config) params(p agentapi.Params) agentapi.Params {
	p.Connections = orDefault(p.Connections, c.Connections)
	p.ChunkBytes = orDefault(p.ChunkBytes, c.ChunkBytes)
	p.Queue = orDefault(p.Queue, c.Queue)
	p.Transport = orDefault(p.Transport, c.Transport)
	p.CongestionControl = orDefault(p.CongestionControl, c.CongestionControl)
	return p
}

// loadTLS returns the TLS configurations of the control server and of data connections; nil
// if there is no certificate.
func (c *Config) loadTLS() (control, data *tls.Config, err error) {
	control, data = c.TLS, c.DataTLS
	if c.Cert == "" {
		return control, data, nil
	}
	if control == nil {
		files := pki.Files{Cert: c.Cert, Key: c.Key, CA: c.CA, Roles: c.Roles}
		if control, err = pki.Server(files, true, pki.RoleController); err != nil {
			return nil, nil, err
		}
	}
	if data == nil {
		if data, err = c.readDataTLS(); err != nil {
			return nil, nil, err
		}
	}
	return control, data, nil
}

// readDataTLS returns the TLS configuration of data connections, for both sides. The session's key
// authenticates peers. Their certificates only have to show that they are agents of the same
// authority, whatever their addresses.
func (c *Config) readDataTLS() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the agent: %w", err)
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA: no certificate in %s", c.CA)
	}
	revocations, err := pki.NewRevocations(c.CA)
	if err != nil {
		return nil, err
	}
	config := DataTLS(cert, pool, c.Roles)
	config.VerifyConnection = revocations.Verify(config.VerifyConnection)
	return config, nil
}

// DataTLS returns the TLS configuration of data connections, for both sides, of an agent
// with the given certificate and the authorities in pool. roles gives the roles of other
// agents whose certificates name none.
func DataTLS(cert tls.Certificate, pool *x509.CertPool, roles pki.Mapping) *tls.Config {
	isAgent := roles.Require(pki.RoleAgent)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientCAs: pool, ClientAuth: tls.RequireAnyClientCert,
		InsecureSkipVerify: true, // VerifyConnection checks the chain without a name
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := verifyChain(s, pool); err != nil {
				return err
			}
			return isAgent(s)
		},
	}
}

// verifyChain returns an error unless an authority in pool has issued the other side's certificate.
func verifyChain(s tls.ConnectionState, pool *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("peer has no certificate")
	}
	rest := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		rest.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: rest, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
