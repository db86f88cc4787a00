package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"
)

// TestTheCertificateThatEndsFirst: a chain is valid until the first of its certificates expires, wherever
// that one stands. Entries that are no certificates do not count.
func TestTheCertificateThatEndsFirst(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().UTC().Truncate(time.Second)
	until := func(days int) []byte {
		c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin.Add(time.Duration(days) * time.Minute), NotAfter: begin.AddDate(0, 0, days)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	for name, chain := range map[string][][]byte{
		"the leaf": {until(3), until(9)}, "an intermediate": {until(9), until(3), until(5)}, "alone": {until(3)}, "behind a broken one": {{1}, until(3)},
	} {
		from, to := validity(tls.Certificate{Certificate: chain})
		if !from.Equal(begin.Add(3*time.Minute)) || !to.Equal(begin.Add(3*24*time.Hour)) {
			t.Errorf("%s: valid from %v to %v, want the certificate of three days", name, from, to)
		}
	}
}
