-1 2 |a ad4 price:1.1 |u user1 |t free red
-1 |a ad0 price:0.2 |u user3 |t red old
-1 |a ad5 price:0.84 |u user2 |t new slow
1 |a ad2 price:1.49 |u user2 |t slow cheap
-1 |a ad1 price:0.19 |u user4 |t slow cheap
-1 2 |a ad0 price:0.11 |u user1 |t new fast
-1 |a ad3 price:1.4 |u user4 |t old slow
-1 |a ad4 price:0.81 |u user3 |t free blue
1 |a ad3 price:1.28 |u user1 |t old new
-1 |a ad2 price:0.46 |u user2 |t free fast
-1 2 |a ad0 price:1.49 |u user3 |t new old
1 |a ad4 price:1.91 |u user3 |t cheap slow
1 |a ad1 price:0.36 |u user2 |t blue fast
-1 |a ad2 price:1.38 |u user0 |t old slow
1 |a ad1 price:1.12 |u user2 |t fast cheap
1 2 |a ad2 price:0.16 |u user1 |t red fast
-1 |a ad4 price:0.41 |u user2 |t free fast
1 |a ad1 price:0.83 |u user3 |t fast slow
-1 |a ad4 price:0.95 |u user2 |t fast slow
1 |a ad1 price:0.26 |u user3 |t blue cheap
-1 2 |a ad0 price:0.88 |u user1 |t slow red
-1 |a ad2 price:1.62 |u user2 |t free old
-1 |a ad1 price:1.23 |u user0 |t blue cheap
1 |a ad2 price:1.13 |u user2 |t fast cheap
-1 |a ad0 price:0.27 |u user3 |t blue new
1 2 |a ad0 price:1.8 |u user1 |t new slow
-1 |a ad1 price:1.97 |u user4 |t red blue
-1 |a ad1 price:0.95 |u user1 |t free blue
1 |a ad1 price:0.46 |u user3 |t fast old
-1 |a ad4 price:0.72 |u user0 |t red cheap
1 2 |a ad5 price:1.24 |u user2 |t old blue
-1 |a ad5 price:0.36 |u user0 |t new old
-1 |a ad4 price:1.67 |u user4 |t new blue
-1 |a ad5 price:1.76 |u user4 |t old slow
-1 |a ad3 price:1.2 |u user2 |t new free
1 2 |a ad5 price:0.44 |u user2 |t red cheap
-1 |a ad4 price:0.02 |u user4 |t free cheap
-1 |a ad4 price:1.2 |u user1 |t blue red
1 |a ad3 price:1.01 |u user2 |t blue old
-1 |a ad0 price:0.14 |u user3 |t blue fast
1 2 |a ad3 price:1.14 |u user3 |t old fast
-1 |a ad0 price:0.43 |u user0 |t slow cheap
-1 |a ad5 price:1.88 |u user1 |t new old
-1 |a ad0 price:0.36 |u user1 |t red old
-1 |a ad2 price:1.64 |u user0 |t new cheap
1 2 |a ad1 price:0.39 |u user1 |t new red
-1 |a ad3 price:0.42 |u user4 |t cheap old
-1 |a ad3 price:0.15 |u user4 |t free new
-1 |a ad4 price:0.52 |u user1 |t free red
1 |a ad3 price:0.07 |u user1 |t blue cheap
-1 2 |a ad5 price:0.91 |u user1 |t cheap slow
-1 |a ad4 price:0.27 |u user3 |t cheap fast
1 |a ad3 price:1.28 |u user2 |t free red
1 |a ad2 price:1.59 |u user4 |t new free
-1 |a ad3 price:0.27 |u user4 |t cheap blue
-1 2 |a ad1 price:1.41 |u user4 |t old slow
-1 |a ad3 price:0.11 |u user3 |t red cheap
1 |a ad1 price:1.72 |u user3 |t old blue
-1 |a ad0 price:0.39 |u user1 |t free blue
1 |a ad0 price:1.97 |u user4 |t fast new
1 2 |a ad1 price:0.55 |u user2 |t blue cheap
-1 |a ad1 price:0.02 |u user0 |t red blue
-1 |a ad1 price:0.91 |u user4 |t old cheap
1 |a ad1 price:1.26 |u user3 |t slow blue
1 |a ad5 price:1.02 |u user1 |t cheap fast
-1 2 |a ad1 price:0.33 |u user4 |t old free
1 |a ad3 price:0.46 |u user2 |t blue cheap
-1 |a ad3 price:0.85 |u user0 |t new red
-1 |a ad3 price:1.24 |u user4 |t new slow
1 |a ad3 price:1.94 |u user3 |t fast cheap
1 2 |a ad5 price:1.98 |u user4 |t slow fast
-1 |a ad3 price:0.59 |u user0 |t red blue
-1 |a ad0 price:1.48 |u user1 |t old slow
1 |a ad3 price:0.54 |u user2 |t red cheap
-1 |a ad1 price:1.08 |u user0 |t old fast
1 2 |a ad1 price:1.02 |u user1 |t free red
-1 |a ad0 price:0.09 |u user1 |t blue free
1 |a ad5 price:0.63 |u user1 |t red slow
-1 |a ad1 price:0.33 |u user2 |t new red
-1 |a ad5 price:0.71 |u user3 |t old red
-1 2 |a ad3 price:1.9 |u user0 |t cheap blue
-1 |a ad3 price:0.47 |u user3 |t blue fast
-1 |a ad0 price:0.86 |u user0 |t blue slow
1 |a ad1 price:1.14 |u user2 |t blue new
-1 |a ad2 price:1.45 |u user4 |t fast blue
-1 2 |a ad4 price:0.5 |u user2 |t new free
-1 |a ad0 price:1.83 |u user2 |t new red
-1 |a ad4 price:0.82 |u user0 |t fast red
-1 |a ad0 price:0.93 |u user2 |t cheap blue
-1 |a ad1 price:0.06 |u user0 |t blue old
-1 2 |a ad0 price:1.12 |u user1 |t fast old
1 |a ad1 price:0.45 |u user1 |t free slow
-1 |a ad3 price:0.34 |u user3 |t new fast
-1 |a ad0 price:0.54 |u user3 |t old red
1 |a ad0 price:1.86 |u user4 |t red free
-1 2 |a ad2 price:1.51 |u user2 |t blue red
1 |a ad3 price:1.06 |u user2 |t old slow
-1 |a ad1 price:0.24 |u user4 |t red cheap
1 |a ad2 price:1.12 |u user1 |t slow cheap
-1 |a ad1 price:0.36 |u user1 |t cheap free
1 2 |a ad1 price:1.48 |u user3 |t red free
1 |a ad3 price:1.93 |u user2 |t old red
1 |a ad1 price:1.17 |u user3 |t blue red
-1 |a ad2 price:0.46 |u user0 |t red blue
-1 |a ad4 price:1.26 |u user0 |t free slow
-1 2 |a ad3 price:0.99 |u user0 |t blue fast
1 |a ad2 price:0.43 |u user1 |t old new
-1 |a ad4 price:1.78 |u user4 |t blue new
1 |a ad3 price:1.63 |u user1 |t fast new
-1 |a ad1 price:0.93 |u user0 |t fast blue
-1 2 |a ad3 price:1.0 |u user3 |t fast cheap
-1 |a ad4 price:1.12 |u user4 |t old free
-1 |a ad5 price:1.45 |u user0 |t red old
1 |a ad1 price:1.89 |u user3 |t slow red
1 |a ad2 price:0.83 |u user3 |t cheap red
-1 2 |a ad3 price:1.52 |u user0 |t free fast
-1 |a ad1 price:0.26 |u user2 |t new blue
1 |a ad1 price:1.11 |u user2 |t new blue
-1 |a ad5 price:1.35 |u user0 |t old blue
-1 |a ad1 price:1.01 |u user1 |t free red
-1 2 |a ad4 price:0.56 |u user0 |t old cheap
-1 |a ad0 price:0.49 |u user4 |t fast slow
-1 |a ad0 price:0.1 |u user0 |t free blue
-1 |a ad4 price:1.38 |u user0 |t fast blue
1 |a ad3 price:1.56 |u user2 |t blue new
-1 2 |a ad0 price:1.08 |u user1 |t new red
-1 |a ad0 price:0.94 |u user1 |t red new
1 |a ad3 price:0.82 |u user2 |t cheap fast
-1 |a ad4 price:0.71 |u user4 |t red old
-1 |a ad4 price:0.37 |u user2 |t old cheap
-1 2 |a ad3 price:0.59 |u user0 |t cheap old
-1 |a ad3 price:1.05 |u user0 |t slow old
1 |a ad5 price:1.06 |u user2 |t blue fast
-1 |a ad1 price:0.41 |u user0 |t fast free
-1 |a ad2 price:1.98 |u user1 |t red cheap
-1 2 |a ad0 price:0.27 |u user2 |t red cheap
-1 |a ad4 price:1.7 |u user0 |t red free
1 |a ad5 price:0.27 |u user3 |t fast blue
-1 |a ad5 price:0.79 |u user4 |t blue slow
1 |a ad3 price:1.79 |u user0 |t slow old
-1 2 |a ad3 price:1.14 |u user0 |t red fast
-1 |a ad3 price:0.84 |u user4 |t slow old
1 |a ad5 price:0.33 |u user3 |t fast slow
-1 |a ad4 price:1.31 |u user0 |t free slow
-1 |a ad3 price:0.11 |u user2 |t new red
-1 2 |a ad5 price:1.92 |u user0 |t slow cheap
-1 |a ad2 price:0.39 |u user2 |t old cheap
-1 |a ad3 price:1.49 |u user3 |t new cheap
-1 |a ad5 price:0.2 |u user0 |t blue red
-1 |a ad1 price:0.38 |u user4 |t fast new
-1 2 |a ad4 price:1.16 |u user2 |t fast new
-1 |a ad4 price:1.39 |u user2 |t fast red
-1 |a ad4 price:1.32 |u user0 |t slow blue
1 |a ad1 price:0.2 |u user3 |t slow free
1 |a ad3 price:1.93 |u user3 |t blue free
-1 2 |a ad0 price:1.08 |u user4 |t slow cheap
1 |a ad1 price:1.35 |u user2 |t fast slow
1 |a ad1 price:1.46 |u user4 |t free blue
1 |a ad2 price:1.52 |u user2 |t new red
-1 |a ad0 price:0.03 |u user0 |t fast new
-1 2 |a ad3 price:0.94 |u user3 |t old slow
-1 |a ad2 price:0.88 |u user1 |t fast old
-1 |a ad1 price:0.92 |u user2 |t red new
-1 |a ad4 price:1.41 |u user0 |t slow red
-1 |a ad2 price:1.54 |u user2 |t fast old
-1 2 |a ad5 price:0.02 |u user4 |t free new
1 |a ad4 price:1.68 |u user3 |t blue red
-1 |a ad0 price:0.17 |u user0 |t new old
1 |a ad5 price:1.68 |u user3 |t fast free
-1 |a ad3 price:1.11 |u user0 |t new fast
1 2 |a ad5 price:1.27 |u user2 |t free slow
-1 |a ad1 price:0.93 |u user4 |t cheap blue
-1 |a ad5 price:1.73 |u user1 |t new old
1 |a ad4 price:1.48 |u user3 |t new blue
1 |a ad3 price:1.31 |u user2 |t new free
-1 2 |a ad0 price:0.3 |u user3 |t blue red
1 |a ad1 price:1.07 |u user3 |t blue red
1 |a ad1 price:0.16 |u user3 |t fast slow
-1 |a ad5 price:0.86 |u user0 |t slow cheap
1 |a ad2 price:1.03 |u user3 |t red cheap
1 2 |a ad2 price:1.78 |u user1 |t cheap old
-1 |a ad3 price:0.33 |u user1 |t old red
-1 |a ad4 price:0.51 |u user1 |t free new
-1 |a ad4 price:0.74 |u user0 |t red free
1 |a ad2 price:1.62 |u user3 |t red blue
-1 2 |a ad5 price:0.06 |u user0 |t new fast
1 |a ad5 price:0.95 |u user3 |t free red
-1 |a ad1 price:1.98 |u user0 |t blue old
-1 |a ad1 price:1.12 |u user1 |t new slow
1 |a ad3 price:0.28 |u user1 |t cheap new
-1 2 |a ad4 price:0.18 |u user0 |t old red
1 |a ad2 price:1.39 |u user3 |t slow cheap
-1 |a ad2 price:0.45 |u user0 |t fast free
-1 |a ad0 price:0.23 |u user3 |t blue fast
-1 |a ad1 price:1.04 |u user4 |t free fast
-1 2 |a ad3 price:1.62 |u user0 |t red blue
-1 |a ad4 price:1.44 |u user1 |t cheap red
-1 |a ad0 price:0.65 |u user1 |t cheap slow
-1 |a ad2 price:0.81 |u user4 |t fast slow
-1 |a ad4 price:0.97 |u user3 |t old cheap
-1 2 |a ad2 price:1.88 |u user2 |t blue red
-1 |a ad1 price:0.26 |u user1 |t slow new
-1 |a ad2 price:0.3 |u user0 |t slow old
1 |a ad0 price:1.73 |u user3 |t cheap blue
-1 |a ad0 price:1.09 |u user3 |t new slow
-1 2 |a ad0 price:1.09 |u user1 |t cheap fast
1 |a ad0 price:0.77 |u user0 |t fast slow
1 |a ad2 price:0.83 |u user1 |t slow fast
-1 |a ad4 price:1.7 |u user3 |t slow red
1 |a ad3 price:1.53 |u user3 |t blue red
-1 2 |a ad4 price:1.68 |u user2 |t blue slow
-1 |a ad0 price:1.11 |u user3 |t old blue
-1 |a ad3 price:1.48 |u user4 |t cheap blue
-1 |a ad4 price:1.34 |u user3 |t blue new
-1 |a ad5 price:0.38 |u user3 |t old slow
-1 2 |a ad2 price:1.75 |u user4 |t slow new
-1 |a ad4 price:1.38 |u user1 |t old slow
1 |a ad3 price:0.56 |u user0 |t red blue
-1 |a ad3 price:0.62 |u user4 |t fast old
1 |a ad1 price:1.43 |u user0 |t old red
-1 2 |a ad3 price:0.94 |u user4 |t cheap old
-1 |a ad3 price:1.32 |u user4 |t cheap old
1 |a ad2 price:1.39 |u user1 |t new slow
1 |a ad5 price:1.74 |u user3 |t cheap old
-1 |a ad2 price:0.11 |u user2 |t fast old
1 2 |a ad5 price:0.44 |u user3 |t red new
-1 |a ad3 price:1.75 |u user4 |t new red
1 |a ad2 price:1.58 |u user3 |t new cheap
-1 |a ad4 price:1.64 |u user0 |t slow red
-1 |a ad5 price:0.95 |u user4 |t new fast
-1 2 |a ad4 price:1.81 |u user3 |t red fast
1 |a ad2 price:1.94 |u user3 |t slow red
1 |a ad5 price:1.39 |u user3 |t new fast
-1 |a ad4 price:0.11 |u user2 |t new fast
1 |a ad5 price:1.83 |u user2 |t slow blue
-1 2 |a ad4 price:0.81 |u user3 |t blue red
1 |a ad5 price:0.92 |u user3 |t cheap slow
-1 |a ad4 price:0.27 |u user2 |t new cheap
1 |a ad3 price:1.03 |u user4 |t new free
-1 |a ad2 price:0.67 |u user2 |t new old
1 2 |a ad3 price:1.71 |u user2 |t slow new
-1 |a ad0 price:1.0 |u user4 |t free slow
-1 |a ad1 price:0.82 |u user4 |t fast new
-1 |a ad3 price:0.28 |u user4 |t fast blue
-1 |a ad0 price:1.01 |u user3 |t old cheap
-1 2 |a ad1 price:1.71 |u user4 |t cheap fast
1 |a ad3 price:1.68 |u user2 |t old blue
-1 |a ad5 price:0.86 |u user4 |t old slow
-1 |a ad3 price:1.44 |u user3 |t fast red
-1 |a ad3 price:1.03 |u user3 |t blue red
1 2 |a ad3 price:0.67 |u user1 |t new slow
1 |a ad2 price:0.57 |u user3 |t cheap slow
-1 |a ad0 price:1.79 |u user1 |t slow blue
1 |a ad1 price:0.55 |u user2 |t cheap slow
-1 |a ad2 price:1.25 |u user0 |t fast red
-1 2 |a ad5 price:0.98 |u user4 |t old red
-1 |a ad2 price:0.08 |u user3 |t blue cheap
-1 |a ad0 price:0.46 |u user2 |t cheap fast
-1 |a ad3 price:1.27 |u user3 |t blue new
-1 |a ad2 price:0.67 |u user1 |t fast new
-1 2 |a ad5 price:1.85 |u user1 |t old blue
-1 |a ad5 price:1.6 |u user1 |t old cheap
-1 |a ad0 price:0.77 |u user4 |t slow fast
1 |a ad3 price:1.66 |u user3 |t free blue
-1 |a ad0 price:1.17 |u user2 |t slow blue
1 2 |a ad4 price:1.83 |u user2 |t fast old
1 |a ad2 price:0.4 |u user1 |t cheap slow
-1 |a ad4 price:1.84 |u user1 |t new slow
-1 |a ad0 price:0.2 |u user2 |t red cheap
-1 |a ad4 price:1.37 |u user4 |t cheap free
-1 2 |a ad3 price:1.44 |u user0 |t free red
-1 |a ad2 price:1.23 |u user4 |t free new
-1 |a ad3 price:1.95 |u user0 |t cheap fast
1 |a ad4 price:1.73 |u user3 |t fast cheap
-1 |a ad0 price:0.34 |u user4 |t cheap blue
-1 2 |a ad2 price:0.49 |u user0 |t new old
-1 |a ad0 price:1.27 |u user4 |t free blue
1 |a ad3 price:0.26 |u user1 |t fast red
-1 |a ad0 price:1.89 |u user4 |t blue slow
-1 |a ad0 price:0.7 |u user3 |t fast slow
-1 2 |a ad2 price:0.75 |u user2 |t slow free
1 |a ad5 price:1.15 |u user1 |t cheap fast
-1 |a ad0 price:0.29 |u user0 |t red new
-1 |a ad3 price:0.23 |u user4 |t cheap blue
-1 |a ad4 price:0.98 |u user0 |t blue fast
-1 2 |a ad4 price:1.8 |u user0 |t red fast
-1 |a ad1 price:1.14 |u user0 |t new cheap
1 |a ad2 price:0.27 |u user1 |t old new
-1 |a ad2 price:0.48 |u user4 |t old fast
-1 |a ad0 price:0.39 |u user4 |t old free
-1 2 |a ad3 price:0.75 |u user4 |t blue free
-1 |a ad4 price:1.98 |u user1 |t cheap red
-1 |a ad5 price:1.36 |u user1 |t old slow
-1 |a ad2 price:0.2 |u user0 |t blue old
-1 |a ad5 price:0.52 |u user2 |t slow free
-1 2 |a ad1 price:1.58 |u user0 |t blue cheap
-1 |a ad1 price:0.76 |u user1 |t fast red
-1 |a ad0 price:1.96 |u user4 |t red old
1 |a ad1 price:0.99 |u user3 |t slow cheap
-1 |a ad0 price:0.16 |u user3 |t fast free
