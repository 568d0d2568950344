// Verifies certificates with Go's crypto/x509: each line of the list is a leaf, its CA, and whether it is good for a
// client and for a server.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

func certificate(path string) *x509.Certificate {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(text)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", path, err))
	}
	return parsed
}

func main() {
	list, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(list)
	count := 0
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		leaf, roots := certificate(fields[0]), x509.NewCertPool()
		roots.AddCert(certificate(fields[1]))
		for index, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
			if fmt.Sprint(err == nil) != fields[2+index] {
				fmt.Println(lines.Text(), err)
				os.Exit(1)
			}
		}
		if len(leaf.UnhandledCriticalExtensions) != 0 {
			fmt.Println(lines.Text(), "has critical extensions that Go does not know")
			os.Exit(1)
		}
		if strings.HasSuffix(fields[0], "svid.pem") {
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != "spiffe://prod/ns/prod/sa/web" {
				fmt.Println(leaf.URIs)
				os.Exit(1)
			}
		}
		count++
	}
	fmt.Println(count, "as expected")
}
