-- The five transactions of TPC-C, clauses 2.4 to 2.8, as procedures: one round trip each. A call is a transaction, and
-- one that fails leaves nothing behind (XACT_ABORT). Locks are taken in one order: customers, districts, warehouses;
-- stock last. A line GO ends a batch, as for sqlcmd. Needs SQL Server 2016 SP1 and compatibility level 130 (OPENJSON).
-- A SELECT that sets variables and finds nothing leaves them as they are; an UPDATE sets a variable to what the column
-- was before.

-- @lines: [[item, supplying warehouse, quantity], ...]. A stock that two lines name is taken from twice, since lines
-- are handled one by one. Gives the order's number, or 0 where an item does not exist and all is rolled back.
CREATE OR ALTER PROCEDURE ashlar_new_order @w int, @d int, @c int, @lines nvarchar(4000)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    DECLARE @line TABLE (number int NOT NULL PRIMARY KEY, item int NOT NULL, supply int NOT NULL, quantity int NOT NULL);
    DECLARE @number int = 1, @count int, @local int, @item int, @supply int, @quantity int, @order int, @stock int;
    DECLARE @discount decimal(4,4), @w_tax decimal(4,4), @d_tax decimal(4,4), @price decimal(5,2);
    DECLARE @total decimal(14,4) = 0;
    DECLARE @last varchar(16), @credit char(2), @info char(24), @name varchar(24), @i_data varchar(50),
        @s_data varchar(50);
    INSERT INTO @line
        SELECT CAST([key] AS int) + 1, CAST(JSON_VALUE(value, '$[0]') AS int), CAST(JSON_VALUE(value, '$[1]') AS int),
            CAST(JSON_VALUE(value, '$[2]') AS int)
        FROM OPENJSON(@lines);
    SELECT @count = count(*), @local = min(CASE WHEN supply = @w THEN 1 ELSE 0 END) FROM @line;
    BEGIN TRANSACTION;
    SELECT @last = c_last, @credit = c_credit, @discount = c_discount, @w_tax = w_tax
        FROM customer JOIN warehouse ON w_id = c_w_id
        WHERE c_w_id = @w AND c_d_id = @d AND c_id = @c;
    UPDATE district SET @order = d_next_o_id, @d_tax = d_tax, d_next_o_id = d_next_o_id + 1
        WHERE d_w_id = @w AND d_id = @d;
    INSERT INTO orders VALUES (@order, @d, @w, @c, SYSUTCDATETIME(), NULL, @count, @local);
    INSERT INTO new_order VALUES (@order, @d, @w);
    WHILE @number <= @count
    BEGIN
        SELECT @item = item, @supply = supply, @quantity = quantity FROM @line WHERE number = @number;
        SET @price = NULL;
        SELECT @price = i_price, @name = i_name, @i_data = i_data FROM item WHERE i_id = @item;
        IF @price IS NULL
        BEGIN
            ROLLBACK TRANSACTION;
            SELECT 0 AS o_id, @last AS c_last, @credit AS c_credit;
            RETURN;
        END;
        UPDATE stock SET @stock = s_quantity, @s_data = s_data,
            @info = CASE @d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04
                WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08
                WHEN 9 THEN s_dist_09 ELSE s_dist_10 END,
            s_quantity = s_quantity - @quantity + CASE WHEN s_quantity - @quantity >= 10 THEN 0 ELSE 91 END,
            s_ytd = s_ytd + @quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN @supply <> @w THEN 1 ELSE 0 END
            WHERE s_w_id = @supply AND s_i_id = @item;
        INSERT INTO order_line VALUES (@order, @d, @w, @number, @item, @supply, NULL, @quantity, @price * @quantity,
            @info);
        SET @total = @total + @price * @quantity;
        SET @number = @number + 1;
    END;
    COMMIT TRANSACTION;
    SELECT @order AS o_id, @last AS c_last, @credit AS c_credit, @discount AS c_discount, @w_tax AS w_tax,
        @d_tax AS d_tax, @total * (1 - @discount) * (1 + @w_tax + @d_tax) AS total;
END
GO
-- @last is null if the customer is given by @c. Gives the customer's number; null where no customer has the name.
CREATE OR ALTER PROCEDURE ashlar_payment
    @w int, @d int, @c_w int, @c_d int, @c int, @last varchar(16), @amount decimal(6,2)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    DECLARE @customer int = @c, @middle int, @balance decimal(12,2), @w_name varchar(10), @d_name varchar(10);
    BEGIN TRANSACTION;
    IF @last IS NOT NULL
    BEGIN
        SELECT @middle = count(*) FROM customer WHERE c_w_id = @c_w AND c_d_id = @c_d AND c_last = @last;
        SET @middle = CASE WHEN @middle > 0 THEN (@middle + 1) / 2 - 1 ELSE 0 END;
        SELECT @customer = c_id FROM customer WHERE c_w_id = @c_w AND c_d_id = @c_d AND c_last = @last
            ORDER BY c_first OFFSET @middle ROWS FETCH NEXT 1 ROWS ONLY;
    END;
    IF @customer IS NOT NULL
    BEGIN
        UPDATE customer SET @balance = c_balance = c_balance - @amount,
            c_ytd_payment = c_ytd_payment + @amount, c_payment_cnt = c_payment_cnt + 1,
            c_data = CASE WHEN c_credit = 'BC' THEN LEFT(CONCAT(@customer, ' ', @c_d, ' ', @c_w, ' ', @d, ' ', @w, ' ',
                @amount, '|', c_data), 500) ELSE c_data END
            WHERE c_w_id = @c_w AND c_d_id = @c_d AND c_id = @customer;
        UPDATE district SET @d_name = d_name, d_ytd = d_ytd + @amount WHERE d_w_id = @w AND d_id = @d;
        UPDATE warehouse SET @w_name = w_name, w_ytd = w_ytd + @amount WHERE w_id = @w;
        INSERT INTO history VALUES (@customer, @c_d, @c_w, @d, @w, SYSUTCDATETIME(), @amount,
            CONCAT(@w_name, '    ', @d_name));
    END;
    COMMIT TRANSACTION;
    SELECT @customer AS c_id, @balance AS c_balance, @w_name AS w_name, @d_name AS d_name;
END
GO
-- The isolation ends with the procedure.
CREATE OR ALTER PROCEDURE ashlar_order_status @w int, @d int, @c int, @last varchar(16)
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    DECLARE @customer int = @c, @order int, @middle int;
    BEGIN TRANSACTION;
    IF @last IS NOT NULL
    BEGIN
        SELECT @middle = count(*) FROM customer WHERE c_w_id = @w AND c_d_id = @d AND c_last = @last;
        SET @middle = CASE WHEN @middle > 0 THEN (@middle + 1) / 2 - 1 ELSE 0 END;
        SELECT @customer = c_id FROM customer WHERE c_w_id = @w AND c_d_id = @d AND c_last = @last
            ORDER BY c_first OFFSET @middle ROWS FETCH NEXT 1 ROWS ONLY;
    END;
    SELECT TOP (1) @order = o_id FROM orders WHERE o_w_id = @w AND o_d_id = @d AND o_c_id = @customer
        ORDER BY o_id DESC;
    SELECT c_first, c_middle, c_last, c_balance FROM customer
        WHERE c_w_id = @w AND c_d_id = @d AND c_id = @customer;
    SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = @w AND o_d_id = @d AND o_id = @order;
    SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = @w AND ol_d_id = @d AND ol_o_id = @order;
    COMMIT TRANSACTION;
END
GO
-- Gives the districts that had an order to deliver, each followed by that order: "1 2101 2 2101 ". The oldest new order
-- is locked when it is read, so that two deliveries do not take the same one.
CREATE OR ALTER PROCEDURE ashlar_delivery @w int, @carrier int
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    DECLARE @d int = 0, @order int, @customer int, @amount decimal(12,2), @done varchar(200) = '';
    BEGIN TRANSACTION;
    WHILE @d < 10
    BEGIN
        SET @d = @d + 1;
        SET @order = NULL;
        SELECT TOP (1) @order = no_o_id FROM new_order WITH (UPDLOCK) WHERE no_w_id = @w AND no_d_id = @d
            ORDER BY no_o_id;
        IF @order IS NOT NULL
        BEGIN
            DELETE FROM new_order WHERE no_w_id = @w AND no_d_id = @d AND no_o_id = @order;
            UPDATE orders SET @customer = o_c_id, o_carrier_id = @carrier
                WHERE o_w_id = @w AND o_d_id = @d AND o_id = @order;
            UPDATE order_line SET ol_delivery_d = SYSUTCDATETIME()
                WHERE ol_w_id = @w AND ol_d_id = @d AND ol_o_id = @order;
            SELECT @amount = sum(ol_amount) FROM order_line
                WHERE ol_w_id = @w AND ol_d_id = @d AND ol_o_id = @order;
            UPDATE customer SET c_balance = c_balance + @amount, c_delivery_cnt = c_delivery_cnt + 1
                WHERE c_w_id = @w AND c_d_id = @d AND c_id = @customer;
            SET @done = CONCAT(@done, @d, ' ', @order, ' ');
        END;
    END;
    COMMIT TRANSACTION;
    SELECT @done AS done;
END
GO
CREATE OR ALTER PROCEDURE ashlar_stock_level @w int, @d int, @threshold int
AS
BEGIN
    SET NOCOUNT, XACT_ABORT ON;
    DECLARE @next int;
    SELECT @next = d_next_o_id FROM district WHERE d_w_id = @w AND d_id = @d;
    SELECT count(DISTINCT s_i_id) AS low FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id
        WHERE ol_w_id = @w AND ol_d_id = @d AND ol_o_id >= @next - 20 AND ol_o_id < @next AND s_quantity < @threshold;
END
