-- The five transactions of TPC-C, clauses 2.4 to 2.8, as procedures: one round trip each. A call is a transaction, and
-- one that fails leaves nothing behind. Locks are taken in one order: customers, districts, warehouses; stock last.
-- A line of two semicolons ends a statement. A SELECT ... INTO that finds nothing leaves its variable as it is.
DROP PROCEDURE IF EXISTS ashlar_new_order
;;
-- in_lines: [[item, supplying warehouse, quantity], ...]. A stock that two lines name is taken from twice, since lines
-- are handled one by one. Gives the order's number, or 0 where an item does not exist and all is rolled back.
CREATE PROCEDURE ashlar_new_order(in_w int, in_d int, in_c int, in_lines text)
BEGIN
    DECLARE a_number, an_item, a_supply, a_quantity, the_order, in_stock int;
    DECLARE discount, w_tax_is, d_tax_is decimal(4,4);
    DECLARE price decimal(5,2);
    DECLARE total decimal(14,4) DEFAULT 0;
    DECLARE last_name varchar(16);
    DECLARE credit char(2);
    DECLARE info char(24);
    DECLARE i_text, s_text varchar(50);
    DECLARE item_name varchar(24);
    DECLARE is_missing, has_ended boolean DEFAULT FALSE;
    DECLARE line CURSOR FOR SELECT number, item, supply, quantity FROM JSON_TABLE(in_lines, '$[*]' COLUMNS (
        number FOR ORDINALITY, item int PATH '$[0]', supply int PATH '$[1]', quantity int PATH '$[2]')) AS asked;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET has_ended = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    SELECT c_last, c_credit, c_discount, w_tax INTO last_name, credit, discount, w_tax_is
        FROM customer JOIN warehouse ON w_id = c_w_id
        WHERE c_w_id = in_w AND c_d_id = in_d AND c_id = in_c;
    SELECT d_next_o_id, d_tax INTO the_order, d_tax_is FROM district
        WHERE d_w_id = in_w AND d_id = in_d FOR UPDATE;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = in_w AND d_id = in_d;
    INSERT INTO orders SELECT the_order, in_d, in_w, in_c, now(6), NULL, count(*), min(supply = in_w)
        FROM JSON_TABLE(in_lines, '$[*]' COLUMNS (supply int PATH '$[1]')) AS asked;
    INSERT INTO new_order VALUES (the_order, in_d, in_w);
    OPEN line;
    each_line: LOOP
        FETCH line INTO a_number, an_item, a_supply, a_quantity;
        IF has_ended THEN LEAVE each_line; END IF;
        SELECT i_price, i_name, i_data INTO price, item_name, i_text FROM item WHERE i_id = an_item;
        IF has_ended THEN SET is_missing = TRUE; LEAVE each_line; END IF;
        SELECT s_quantity, s_data, CASE in_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07
                WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
            INTO in_stock, s_text, info FROM stock WHERE s_w_id = a_supply AND s_i_id = an_item FOR UPDATE;
        UPDATE stock SET
            s_quantity = in_stock - a_quantity + IF(in_stock - a_quantity >= 10, 0, 91),
            s_ytd = s_ytd + a_quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (a_supply <> in_w)
            WHERE s_w_id = a_supply AND s_i_id = an_item;
        INSERT INTO order_line VALUES (the_order, in_d, in_w, a_number, an_item, a_supply, NULL, a_quantity,
            price * a_quantity, info);
        SET total = total + price * a_quantity;
    END LOOP;
    CLOSE line;
    IF is_missing THEN
        ROLLBACK;
        SELECT 0, last_name, credit;
    ELSE
        COMMIT;
        SELECT the_order, last_name, credit, discount, w_tax_is, d_tax_is,
            total * (1 - discount) * (1 + w_tax_is + d_tax_is);
    END IF;
END
;;
DROP PROCEDURE IF EXISTS ashlar_payment
;;
-- in_last is null if the customer is given by in_c. Gives the customer's number; null where no customer has the name.
CREATE PROCEDURE ashlar_payment(
    in_w int, in_d int, in_c_w int, in_c_d int, in_c int, in_last varchar(16), in_amount decimal(6,2))
BEGIN
    DECLARE the_customer int DEFAULT in_c;
    DECLARE how_many int DEFAULT 0;
    DECLARE w_name_is, d_name_is varchar(10);
    DECLARE balance decimal(12,2);
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    IF in_last IS NOT NULL THEN
        SELECT count(*) INTO how_many FROM customer
            WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_last = in_last;
        SET how_many = GREATEST((how_many + 1) DIV 2 - 1, 0);
        SELECT c_id INTO the_customer FROM customer
            WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_last = in_last
            ORDER BY c_first LIMIT 1 OFFSET how_many;
    END IF;
    IF the_customer IS NOT NULL THEN
        -- c_data comes before what it is made of changes: MariaDB assigns from left to right.
        UPDATE customer SET
            c_data = IF(c_credit = 'BC', LEFT(CONCAT(the_customer, ' ', in_c_d, ' ', in_c_w, ' ', in_d, ' ', in_w, ' ',
                in_amount, '|', c_data), 500), c_data),
            c_balance = c_balance - in_amount, c_ytd_payment = c_ytd_payment + in_amount,
            c_payment_cnt = c_payment_cnt + 1
            WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_id = the_customer;
        UPDATE district SET d_ytd = d_ytd + in_amount WHERE d_w_id = in_w AND d_id = in_d;
        SELECT d_name INTO d_name_is FROM district WHERE d_w_id = in_w AND d_id = in_d;
        UPDATE warehouse SET w_ytd = w_ytd + in_amount WHERE w_id = in_w;
        SELECT w_name INTO w_name_is FROM warehouse WHERE w_id = in_w;
        INSERT INTO history VALUES (the_customer, in_c_d, in_c_w, in_d, in_w, now(6), in_amount,
            CONCAT(w_name_is, '    ', d_name_is));
        SELECT c_balance INTO balance FROM customer
            WHERE c_w_id = in_c_w AND c_d_id = in_c_d AND c_id = the_customer;
    END IF;
    COMMIT;
    SELECT the_customer, balance, w_name_is, d_name_is;
END
;;
DROP PROCEDURE IF EXISTS ashlar_order_status
;;
CREATE PROCEDURE ashlar_order_status(in_w int, in_d int, in_c int, in_last varchar(16))
BEGIN
    DECLARE the_customer int DEFAULT in_c;
    DECLARE the_order int;
    DECLARE how_many int DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    START TRANSACTION READ ONLY;
    IF in_last IS NOT NULL THEN
        SELECT count(*) INTO how_many FROM customer WHERE c_w_id = in_w AND c_d_id = in_d AND c_last = in_last;
        SET how_many = GREATEST((how_many + 1) DIV 2 - 1, 0);
        SELECT c_id INTO the_customer FROM customer WHERE c_w_id = in_w AND c_d_id = in_d AND c_last = in_last
            ORDER BY c_first LIMIT 1 OFFSET how_many;
    END IF;
    SELECT o_id INTO the_order FROM orders WHERE o_w_id = in_w AND o_d_id = in_d AND o_c_id = the_customer
        ORDER BY o_id DESC LIMIT 1;
    SELECT c_first, c_middle, c_last, c_balance FROM customer
        WHERE c_w_id = in_w AND c_d_id = in_d AND c_id = the_customer;
    SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = in_w AND o_d_id = in_d AND o_id = the_order;
    SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id = the_order;
    COMMIT;
END
;;
DROP PROCEDURE IF EXISTS ashlar_delivery
;;
-- Gives the districts that had an order to deliver, each followed by that order: "1 2101 2 2101 ".
CREATE PROCEDURE ashlar_delivery(in_w int, in_carrier int)
BEGIN
    DECLARE in_d, delivered, paid_by int DEFAULT 0;
    DECLARE amount decimal(12,2);
    DECLARE done text DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    WHILE in_d < 10 DO
        SET in_d = in_d + 1;
        SET delivered = NULL;
        SELECT no_o_id INTO delivered FROM new_order WHERE no_w_id = in_w AND no_d_id = in_d
            ORDER BY no_o_id LIMIT 1 FOR UPDATE;
        IF delivered IS NOT NULL THEN
            DELETE FROM new_order WHERE no_w_id = in_w AND no_d_id = in_d AND no_o_id = delivered;
            SELECT o_c_id INTO paid_by FROM orders WHERE o_w_id = in_w AND o_d_id = in_d AND o_id = delivered;
            UPDATE orders SET o_carrier_id = in_carrier WHERE o_w_id = in_w AND o_d_id = in_d AND o_id = delivered;
            UPDATE order_line SET ol_delivery_d = now(6)
                WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id = delivered;
            SELECT sum(ol_amount) INTO amount FROM order_line
                WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id = delivered;
            UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
                WHERE c_w_id = in_w AND c_d_id = in_d AND c_id = paid_by;
            SET done = CONCAT(done, in_d, ' ', delivered, ' ');
        END IF;
    END WHILE;
    COMMIT;
    SELECT done;
END
;;
DROP PROCEDURE IF EXISTS ashlar_stock_level
;;
CREATE PROCEDURE ashlar_stock_level(in_w int, in_d int, in_threshold int)
BEGIN
    DECLARE next_order int;
    SELECT d_next_o_id INTO next_order FROM district WHERE d_w_id = in_w AND d_id = in_d;
    SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = in_w AND ol_d_id = in_d AND ol_o_id >= next_order - 20 AND ol_o_id < next_order
        AND s_quantity < in_threshold;
END
