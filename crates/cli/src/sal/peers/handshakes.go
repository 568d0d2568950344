// TLS 1.3 handshakes of Go's crypto/tls in memory, client and server on one core.
//
// Reads lines "KEY GROUP CLIENT_CERTIFICATE RESUMED MILLISECONDS" and answers each with the nanoseconds that the
// fastest of several batches took for one handshake, or with a line that starts with "no" and says why there is none.
package main

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// buffer is one direction of a connection that never blocks its writer.
type buffer struct {
	lock  sync.Mutex
	ready *sync.Cond
	data  bytes.Buffer
	ended bool
}

func newBuffer() *buffer {
	b := &buffer{}
	b.ready = sync.NewCond(&b.lock)
	return b
}

func (b *buffer) Read(to []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	for b.data.Len() == 0 {
		if b.ended {
			return 0, io.EOF
		}
		b.ready.Wait()
	}
	return b.data.Read(to)
}

func (b *buffer) Write(from []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.ready.Signal()
	return b.data.Write(from)
}

func (b *buffer) end() {
	b.lock.Lock()
	b.ended = true
	b.lock.Unlock()
	b.ready.Broadcast()
}

type end struct {
	in, out *buffer
}

func (e end) Read(to []byte) (int, error)      { return e.in.Read(to) }
func (e end) Write(from []byte) (int, error)   { return e.out.Write(from) }
func (e end) Close() error                     { e.in.end(); e.out.end(); return nil }
func (e end) LocalAddr() net.Addr              { return &net.IPAddr{} }
func (e end) RemoteAddr() net.Addr             { return &net.IPAddr{} }
func (e end) SetDeadline(time.Time) error      { return nil }
func (e end) SetReadDeadline(time.Time) error  { return nil }
func (e end) SetWriteDeadline(time.Time) error { return nil }

func key(name string) (crypto.Signer, error) {
	switch name {
	case "ed25519":
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return private, err
	case "ecdsa-p256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ecdsa-p384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "rsa-2048":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "rsa-3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "rsa-4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	}
	return nil, errors.New("crypto/tls has no " + name + " certificates")
}

type credentials struct {
	roots          *x509.CertPool
	server, client tls.Certificate
}

func issue(name string) (*credentials, error) {
	authority, err := key(name)
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, authority.Public(), authority)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	leaf := func(number int64) (tls.Certificate, error) {
		private, err := key(name)
		if err != nil {
			return tls.Certificate{}, err
		}
		template := x509.Certificate{
			SerialNumber: big.NewInt(number), DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, &template, root, private.Public(), authority)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
	}
	made := &credentials{roots: x509.NewCertPool()}
	made.roots.AddCert(root)
	if made.server, err = leaf(2); err != nil {
		return nil, err
	}
	made.client, err = leaf(3)
	return made, err
}

var groups = map[string]tls.CurveID{
	"x25519": tls.X25519, "secp256r1": tls.CurveP256, "secp384r1": tls.CurveP384, "X25519MLKEM768": tls.X25519MLKEM768,
}

func handshake(client, server *tls.Config, resumed bool) error {
	up, down := newBuffer(), newBuffer()
	failed := make(chan error, 1)
	go func() {
		connection := tls.Server(end{up, down}, server)
		err := connection.Handshake()
		if err == nil {
			_, err = connection.Write([]byte{0})
		}
		failed <- err
	}()
	connection := tls.Client(end{down, up}, client)
	if err := connection.Handshake(); err != nil {
		up.end()
		return err
	}
	// The tickets come before the byte.
	if _, err := connection.Read(make([]byte, 1)); err != nil {
		return err
	}
	if err := <-failed; err != nil {
		return err
	}
	if connection.ConnectionState().DidResume != resumed {
		return errors.New("the session was not resumed")
	}
	return nil
}

func run(line string, known map[string]*credentials) (time.Duration, error) {
	var name, group string
	var clientCertificate, resumed bool
	var milliseconds int
	if _, err := fmt.Sscan(line, &name, &group, &clientCertificate, &resumed, &milliseconds); err != nil {
		return 0, err
	}
	curve, ok := groups[group]
	if !ok {
		return 0, errors.New("crypto/tls has no " + group)
	}
	made, ok := known[name]
	if !ok {
		var err error
		if made, err = issue(name); err != nil {
			return 0, err
		}
		known[name] = made
	}
	server := &tls.Config{
		Certificates: []tls.Certificate{made.server}, MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{curve},
		SessionTicketsDisabled: !resumed,
	}
	client := &tls.Config{
		RootCAs: made.roots, ServerName: "localhost", MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{curve},
	}
	if clientCertificate {
		server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, made.roots
		client.Certificates = []tls.Certificate{made.client}
	}
	if resumed {
		client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		if err := handshake(client, server, false); err != nil {
			return 0, err
		}
	}
	best := time.Duration(1<<62 - 1)
	for until := time.Now().Add(time.Duration(milliseconds) * time.Millisecond); time.Now().Before(until); {
		const batch = 8
		started := time.Now()
		for range batch {
			if err := handshake(client, server, resumed); err != nil {
				return 0, err
			}
		}
		best = min(best, time.Since(started)/batch)
	}
	return best, nil
}

func main() {
	runtime.GOMAXPROCS(1)
	known := map[string]*credentials{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		took, err := run(lines.Text(), known)
		if err != nil {
			fmt.Println("no", strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		fmt.Println(took.Nanoseconds())
	}
}
