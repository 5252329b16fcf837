1 2 |a ad4 price:1.84 |u user1 |t new blue
-1 |a ad3 price:0.92 |u user4 |t cheap old
-1 |a ad2 price:1.2 |u user4 |t red old
-1 |a ad4 price:0.89 |u user4 |t new old
1 |a ad3 price:1.88 |u user3 |t new cheap
1 2 |a ad1 price:0.74 |u user3 |t red blue
-1 |a ad1 price:1.49 |u user4 |t old slow
1 |a ad5 price:1.83 |u user2 |t red slow
-1 |a ad4 price:0.15 |u user3 |t fast slow
-1 |a ad3 price:1.0 |u user3 |t old slow
-1 2 |a ad0 price:1.03 |u user2 |t new red
1 |a ad0 price:1.33 |u user3 |t old free
-1 |a ad1 price:0.42 |u user3 |t slow fast
-1 |a ad1 price:1.04 |u user0 |t free new
-1 |a ad0 price:0.17 |u user3 |t free old
-1 2 |a ad0 price:0.04 |u user0 |t slow cheap
1 |a ad2 price:0.78 |u user1 |t old fast
-1 |a ad4 price:1.87 |u user1 |t new blue
1 |a ad3 price:1.4 |u user4 |t old red
-1 |a ad4 price:0.09 |u user3 |t slow fast
1 2 |a ad3 price:0.1 |u user1 |t old fast
-1 |a ad0 price:1.71 |u user1 |t free blue
-1 |a ad4 price:1.52 |u user2 |t free slow
-1 |a ad4 price:1.48 |u user3 |t red blue
